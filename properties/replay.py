"""Replays a trace on the model: what happened, what was admitted first, and what it violates."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from model.policy import Policy
from model.system import Observation, apply, initial
from model.trace import ExpectedAdmission, Trace
from properties.invariant import Violation
from properties.judge import violations
from properties.policy_guard import PolicyRaised, guarded


@attrs.frozen
class Replay:
    """What a trace did under one policy.

    `violations` name the index of their action. `admissions` is what was first adopted for each request, in order.
    """

    policy: str
    trace: Trace
    observations: tuple[Observation, ...]
    violations: tuple[Violation, ...]
    admissions: tuple[ExpectedAdmission, ...]


def replay(trace: Trace, policy: Policy) -> Replay:
    """Replay all actions, beyond a violation too, unless the engine cannot go on: its own assertion failed, or the
    policy raised. Raises IllegalAction if an action is not possible where it stands."""
    system = initial(trace.configuration)
    observations: list[Observation] = []
    found: list[Violation] = []
    for index, action in enumerate(trace.actions):
        try:
            system, observed = apply(system, guarded(policy), action)
        except PolicyRaised as raised:
            found.append(Violation("POLICY-TOTAL", None, str(raised), index))
            break
        observations += observed
        for observation in observed:
            found += (attrs.evolve(violation, action=index) for violation in violations(observation))
        if system.assertion:
            break
    return Replay(policy.name, trace, tuple(observations), tuple(found), first_admissions(observations))


def first_admissions(observations: Iterable[Observation]) -> tuple[ExpectedAdmission, ...]:
    """What was first adopted for each request, in order."""
    first: dict[str, ExpectedAdmission] = {}
    for admission in admissions_of(observations):
        first.setdefault(admission.request, admission)
    return tuple(first.values())


def admissions_of(observations: Iterable[Observation]) -> tuple[ExpectedAdmission, ...]:
    """What was adopted at each admission, in order; a request that is preempted or that restarts has several."""
    decisions = (decision for observation in observations for decision in observation.decisions)
    return tuple(ExpectedAdmission(decision.request, decision.local, decision.external) for decision in decisions)
