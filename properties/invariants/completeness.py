"""Completeness, which is not safety: the price of being too careful. And that a policy decides at all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from model.actions import Drain, Step
from model.request import Status
from model.saving import referenced
from model.system import Observation
from properties import wording
from properties.invariant import Finding, Invariant, Kind
from properties.invariants.reach import lookup_understated, unkept
from properties.invariants.stores import half_saved, understated
from properties.verdict import Case


def progress(observation: Observation) -> Iterator[Finding]:
    """A step with a full budget that does nothing, while nobody waits for an answer or a load: nothing ever will."""
    action, after = observation.action, observation.after
    for name, request in after.scheduler.requests.items():
        if request.status in (Status.LOADING, Status.ABORTED_LOADING) and not all(load.comes for load in request.loads):
            yield None, f"{name} waits for a load that never starts: its peer has sent everything before"
    if not isinstance(action, Step | Drain) or observation.planned is None or after.assertion:
        return
    if action.budget is not None and action.budget < after.configuration.budget:
        return
    if observation.planned.chunks or observation.admissions or observation.preempted or observation.asked_again:
        return
    if referenced(after.scheduler):
        return  # these blocks are free again once the saves are done
    requests = after.scheduler.requests.values()
    if any(request.status in (Status.LOADING, Status.ABORTED_LOADING) for request in requests):
        return
    # Loaded requests may block each other here, for want of the reserve that vLLM keeps for them.
    if any(request.status is not Status.RUNNING and any(request.tables) for request in requests):
        return
    for name, request in after.scheduler.requests.items():
        yield None, f"{name} is {request.status.value} at {request.computed} of {len(request.tokens)} tokens for ever"


def reach(observation: Observation) -> Iterator[Finding]:
    yield from lookup_understated(observation)
    yield from ((Case.RELEASE, message) for message in unkept(observation))
    yield from ((None, message) for message in understated(observation))
    yield from half_saved(observation)


def stopped(observation: Observation) -> Iterator[Finding]:
    """The engine's own assertion fails at an admission that leaves a token to run, and for which enough blocks were
    estimated: an assertion that is too strict."""
    if not observation.after.assertion or not observation.admissions:
        return
    short = any(allotment.allocated > allotment.estimated for allotment in observation.allotments)
    last = observation.admissions[-1]
    decision = last.decision
    if not short and not last.loads and last.chunk == 0 and decision.resume < len(decision.prefix):
        boundary = wording.sum_of(decision.local, decision.external)
        yield None, f"{decision.request}: {boundary}; the engine stops: {observation.after.assertion}"


ENTRIES = (
    Invariant(
        id="REACH",
        number="I15",
        kind=Kind.COMPLETENESS,
        statement="Every boundary that the retention policy promises to a lookup, after cap, drop and junction, is "
        "materialised, retained, published and storable; the reported hit is the greatest safe one that the policy's "
        "rules allow.",
        reason="A cache that never hits is safe and useless. A policy can only lower what the lookups find, and a "
        "store answer less than it has: those gaps are theirs. What is not searched, not cached or not offered to "
        "stores no policy makes good: that is reported of the releases of vLLM (by the rules of the release), and of "
        "no other policy.",
        reports=(
            "vllm #56142",
            "vllm #42547",
            "vllm #44243",
            "vllm #54076",
            "vllm #51771",
            "vllm #55760",
            "vllm #53945",
            "vllm #57616",
            "vllm #50235",
            "vllm #52773",
            "SGLang #22935",
            "vllm #56972",
        ),
        proof="reconciling lookup: no greater boundary is common to all groups",
        predicate=reach,
    ),
    Invariant(
        id="PROGRESS",
        number="I16",
        kind=Kind.COMPLETENESS,
        statement="No wait for a load that never starts, no endless zero-token schedule; a one-shot source reports 0 "
        "once consumed.",
        reason="A request that never runs again holds its blocks for ever.",
        reports=("LMCache #2879", "vllm #53250", "vllm #31583", "1Cat-vLLM #472"),
        waits_for="the reserve of blocks for loading requests (`_inflight_prefill_reserved_blocks`)",
        predicate=lambda observation: chain(progress(observation), stopped(observation)),
    ),
    Invariant(
        id="POLICY-TOTAL",
        kind=Kind.SAFETY,
        statement="A policy decides on every reachable input: no part of it raises.",
        reason="An exception in the policy stops the scheduler, and every request with it.",
        proof="every engine that runs the policy: a feasible path that raises is a violation",
        checked_by="the guard around the policy (properties/policy_guard.py)",
    ),
)
