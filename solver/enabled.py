"""What can happen next in a state of a scope: every action, each exactly once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from model.actions import Abort, Action, EndLoad, Evict, Preempt, Reset, Step
from model.configuration import Eviction
from model.plan import StepPlan
from model.pool import Label
from model.request import Status
from model.system import System
from solver.scope import Disturbance, Scope

_LOADING = (Status.LOADING, Status.ABORTED_LOADING)


def enabled(scope: Scope, system: System) -> Iterator[Action]:
    """Every action that is possible in `system`, but for steps with failing loads: these depend on the step's plan."""
    if system.assertion:
        return
    requests = system.scheduler.requests
    if requests:
        yield Step()
    for arrival in scope.arrivals:
        if arrival.request not in system.texts:
            yield arrival
    for name, request in requests.items():
        if request.status in _LOADING:
            yield EndLoad(name, True)
            if Disturbance.FAILED_LOADS in scope.disturbances:
                yield EndLoad(name, False)
    yield from evictions(scope, system)
    if Disturbance.ABORT in scope.disturbances:
        for name, request in requests.items():
            if request.status is not Status.ABORTED_LOADING:
                yield Abort(name)
    if Disturbance.PREEMPT in scope.disturbances and system.scheduler.running:
        yield Preempt()
    if Disturbance.RESET in scope.disturbances and _can_reset(system):
        yield Reset()


def failing_steps(scope: Scope, plan: StepPlan) -> Iterator[Step]:
    """The step that made `plan`, with each choice of requests whose synchronous loads fail."""
    if Disturbance.FAILED_LOADS not in scope.disturbances:
        return
    loading = sorted({load.request for load in plan.loads})
    for count in range(1, len(loading) + 1):
        for failed in itertools.combinations(loading, count):
            yield Step(failed_loads=failed)


def evictions(scope: Scope, system: System) -> Iterator[Evict]:
    """Every eviction that is possible in `system`."""
    if scope.configuration.eviction is not Eviction.ADVERSARIAL:
        return
    pool = system.scheduler.pool
    for label, blocks in pool.cached.items():
        if not pool.refs[blocks[0]]:
            yield Evict(label.group, _spelling(system, label), len(label.prefix))


def _spelling(system: System, label: Label) -> str:
    """A request that has arrived and whose text begins with the label's prefix."""
    length = len(label.prefix)
    return next(name for name, text in system.texts.items() if text[:length] == label.prefix)


def _can_reset(system: System) -> bool:
    """Something is cached or running, and nothing but running requests holds blocks."""
    scheduler = system.scheduler
    if not scheduler.pool.cached and not scheduler.running:
        return False
    return all(
        request.status is Status.RUNNING or not any(map(any, request.tables)) for request in scheduler.requests.values()
    )
