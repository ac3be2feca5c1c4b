"""Events of runs with several steps in flight."""

from __future__ import annotations

import functools

from model.actions import Abort, Preempt, Reset
from model.request import Status
from model.system import Observation
from model.worker import writes_in_flight
from properties.features import Feature
from properties.invariant import Sometimes, draws


def _scheduled_ahead(observation: Observation) -> bool:
    return observation.planned is not None and any(step.plan.chunks for step in observation.before.scheduler.in_flight)


def _hit_in_flight(observation: Observation) -> bool:
    """A request starts on a block that a step in flight is still to write."""
    if observation.planned is None or not _scheduled_ahead(observation):
        return False
    before = observation.before
    plans = [step.plan for step in before.scheduler.in_flight]
    awaited = writes_in_flight(before.configuration, before.worker, plans)
    return any(
        block in awaited
        for chunk in observation.planned.chunks
        if chunk.starts
        for index, group in enumerate(before.configuration.groups)
        for block in chunk.new_blocks[index][: -(-chunk.computed // group.block)]
    )


def _in_flight(observation: Observation, name: str) -> bool:
    request = observation.before.scheduler.requests.get(name)
    return request is not None and request.in_flight > 0


def _ended_in_flight(observation: Observation) -> bool:
    action = observation.action
    return isinstance(action, Abort) and _in_flight(observation, action.request)


def _preempted_in_flight(observation: Observation) -> bool:
    before, after = observation.before.scheduler, observation.after.scheduler
    lost = set(before.running) - set(after.running)
    return isinstance(observation.action, Preempt | Reset) and any(_in_flight(observation, name) for name in lost)


def _freed_later(observation: Observation) -> bool:
    return any(step.freed for step in observation.after.scheduler.in_flight)


def _loaded_in_flight(observation: Observation) -> bool:
    """An asynchronous load is under way while steps are in flight."""
    requests = observation.after.scheduler.requests.values()
    return bool(observation.after.scheduler.in_flight) and any(each.status is Status.LOADING for each in requests)


def _in_flight_after(observation: Observation, name: str) -> bool:
    request = observation.after.scheduler.requests.get(name)
    return request is not None and request.stale > 0


def _rolled_back_in_flight(observation: Observation) -> bool:
    return any(_in_flight_after(observation, name) for name in observation.rolled_back)


_event = functools.partial(
    Sometimes, applies_to="campaigns with several steps in flight", applies=draws(Feature.STEPS_IN_FLIGHT)
)


ENTRIES = (
    _event(
        id="SCHEDULED-AHEAD",
        statement="A step is scheduled while another is in flight.",
        occurs=_scheduled_ahead,
    ),
    _event(
        id="HIT-IN-FLIGHT",
        statement="A request is admitted on a block that a step in flight is still to write.",
        occurs=_hit_in_flight,
    ),
    _event(
        id="ABORTED-IN-FLIGHT",
        statement="A request is aborted while a chunk of it is in flight.",
        occurs=_ended_in_flight,
    ),
    _event(
        id="PREEMPTED-IN-FLIGHT",
        statement="A request is preempted, or the cache is reset, while a chunk of it is in flight.",
        occurs=_preempted_in_flight,
    ),
    _event(
        id="FREED-LATER",
        statement="Blocks that a step in flight still writes wait for it before they are free.",
        occurs=_freed_later,
    ),
    _event(
        id="LOADING-IN-FLIGHT",
        statement="An asynchronous load is under way while steps are in flight.",
        occurs=_loaded_in_flight,
    ),
    _event(
        id="ROLLED-BACK-IN-FLIGHT",
        statement="A load fails after a later step of its request was scheduled.",
        occurs=_rolled_back_in_flight,
    ),
)
