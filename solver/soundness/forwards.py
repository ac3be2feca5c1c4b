"""Runs of the model in which a property is violated: from the initial state, or from any other state between steps."""

from __future__ import annotations

import sys

import attrs

from model.actions import Action
from model.errors import IllegalAction
from model.policy import Policy
from model.system import Observation, System, apply, initial
from model.trace import Trace
from properties.judge import violations
from properties.policy_guard import PolicyRaised
from solver.codec import Codec, CodecFault
from solver.confirm import confirmed
from solver.remembered_policy import remembered
from solver.scope import Scope
from solver.search import NO_STATE, Limits, Reached, Search, Symmetry

STATES = (100, 1_000, 3_000)
"""How many states are kept, from one look at what was violated to the next."""

WITH_ITS_NAMES = Symmetry(requests=False)
"""Requests keep their names, so that a path is a run."""


@attrs.frozen
class Found:
    """What a search says of a property: the actions of a shortest run that violates it and what was observed in it,
    both empty if there is none, and how far it was looked for."""

    actions: tuple[Action, ...]
    observations: tuple[Observation, ...]
    searched: str


def seek_from(system: System, scope: Scope, policy: Policy, property: str) -> Found:
    """A shortest run from `system` that violates the property. Raises NotEncodable where a state of the model cannot be
    searched from."""
    codec = Codec(scope, sort_blocks=True)
    start = codec.encode(system)
    reached = Reached({start: 0}, code_bytes=sys.getsizeof(start), levels=[1])
    reached.parents.append(NO_STATE)
    reached.actions.append(0)
    search = Search(scope, remembered(policy), WITH_ITS_NAMES, codec=codec, reached=reached)
    for states in STATES:
        try:
            search.run(Limits(states=states))
        except CodecFault as fault:
            return Found((), (), f"the search cannot go on: {fault}")
        sought = [where for (violated, _), where in reached.violations.items() if violated == property]
        if sought:
            state, number = min(sought)
            observed = _observed(search, policy, system, (*search.path(state), number))
            return Found(tuple(each.action for each in observed), observed, _told(search))
        if reached.complete:
            break
    return Found((), (), _told(search))


def _observed(search: Search, policy: Policy, system: System, numbers: tuple[int, ...]) -> tuple[Observation, ...]:
    """The run, on the readable model; empty if it is none, or violates nothing."""
    observed: list[Observation] = []
    for number in numbers:
        try:
            system, (observation,) = apply(system, policy, search.plain.action_of(number, system))
        except (IllegalAction, PolicyRaised, StopIteration):
            return ()
        observed.append(observation)
    return tuple(observed) if observed and violations(observed[-1]) else ()


def _told(search: Search) -> str:
    reached = search.reached
    counts = f"{len(reached.codes):,} states"
    if reached.complete:
        return f"{search.scope.name}: every state, {counts}"
    return f"{search.scope.name}: runs of at most {reached.depth} actions, {counts}"


def seek_violation(scope: Scope, policy: Policy, property: str) -> tuple[Trace | None, str]:
    """A shortest run of the scope that violates the property, replayed, and how far it was looked for."""
    found = seek_from(initial(scope.configuration), scope, policy, property)
    trace = Trace("", scope.configuration, found.actions) if found.actions else None
    return (confirmed(policy, property, None, trace) if trace else None), found.searched
