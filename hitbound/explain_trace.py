"""`hitbound explain TRACE`: a violating run in words, with its numbers, and what other policies do instead."""

from __future__ import annotations

from collections.abc import Iterator

from hitbound.source_lines import deciding_lines
from model.admission import Decision
from model.configuration import Configuration
from model.connector import leaves_of
from model.errors import IllegalAction
from model.policies import POLICIES
from model.policy import Policy
from model.system import Observation
from model.trace import Trace
from properties import wording
from properties.catalogue import INVARIANTS
from properties.replay import Replay, replay


def trace_explained(trace: Trace, policy: Policy) -> Iterator[str]:
    """One line per thought."""
    replayed = replay(trace, policy)
    yield f"{trace.title}. Under {policy.name}:"
    violated = dict.fromkeys(violation.property for violation in replayed.violations)
    telling = _telling(replayed)
    if telling is not None:
        yield ""
        yield from _decision(telling.after.configuration, telling.admissions[-1].decision)
    for observation in replayed.observations:
        for read in observation.execution.bad_reads if observation.execution else ():
            told = wording.bad_read(observation.after.configuration, read, observation.after.texts[read.request])
            yield f"Then {read.request} runs from {read.computed}: {told}."
    for property in violated:
        yield ""
        yield from _violation(replayed, property)
    if not violated:
        yield "It violates nothing."
    if violated:
        yield ""
        yield from (f"Decided by {line}" for line in _places(policy, list(violated)))
        yield ""
        yield from _others(trace, policy)


def _telling(replayed: Replay) -> Observation | None:
    """The last admission with a hit or a load, of an action that violates something if there is one."""
    actions = [replayed.trace.actions[each.action] for each in replayed.violations if each.action is not None]
    admitting = [observation for observation in replayed.observations if observation.admissions]
    in_violation = [observation for observation in admitting if any(observation.action is each for each in actions)]
    hits = [each for each in in_violation or admitting if each.admissions[-1].decision.resume]
    return next(iter(hits[-1:] or in_violation[-1:] or admitting[-1:]), None)


def _decision(configuration: Configuration, decision: Decision) -> Iterator[str]:
    summary, N = decision.summary, len(decision.prefix)
    yield f"{decision.request} has N = {N} tokens, so at most {N - 1} may be a hit: the last one has to run."
    for view in decision.lookup.views:
        groups = " and ".join(wording.group_name(configuration, index) for index in view.indexes)
        kind = "a state" if view.recurrent else "KV"
        yield f"{groups}: the deepest boundary with {kind} in the cache is {view.hit}."
    yield f"The deepest boundary that is valid in every group, the common hit, is {summary.common}."
    if configuration.connector is not None:
        claim = "claims" if decision.claims else "does not claim"
        kind = summary.lookup.value.replace("_", "-")
        yield f"The connector {claim} to restore lagging state; `lookup` gives it the {kind} lookup."
    diverged = ", and says that it diverged" if decision.diverged else ""
    yield f"`local` makes L = {decision.first_local} of that{diverged}."
    if configuration.connector is not None:
        source = _source(configuration, decision)
        yield f"The connector is asked from {decision.asked} and answers E = {decision.answer.tokens}{source}."
    yield (
        f"`settle` adopts L = {decision.local} and E = {decision.external}: the request resumes at "
        f"R = {decision.local} + {decision.external} = {decision.resume}."
    )
    lagging = [
        f"{wording.group_name(configuration, view.indexes[0])} ({view.find(decision.resume)})"
        for view in decision.lookup.views
        if not view.valid(decision.resume)
    ]
    if lagging and decision.resume:
        load = "the load has to bring it" if decision.external else "and nothing is loaded"
        yield f"Without a load R = {decision.resume} is not valid in {', '.join(lagging)}; {load}."


def _source(configuration: Configuration, decision: Decision) -> str:
    leaves = list(leaves_of(configuration.connector)) if configuration.connector else []
    if not 0 <= decision.answer.source < len(leaves):
        return ""
    leaf = leaves[decision.answer.source]
    return f" (from {leaf.name}, which promises the contract {leaf.contract.name.lower()})"


def _violation(replayed: Replay, property: str) -> Iterator[str]:
    if property in INVARIANTS:
        yield f"{property} says: {INVARIANTS[property].statement}"
    messages = dict.fromkeys(each.message for each in replayed.violations if each.property == property)
    yield from (f"Here: {message}." for message in messages)


def _places(policy: Policy, properties: list[str]) -> list[str]:
    return list(dict.fromkeys(line for property in properties for line in deciding_lines(policy, property)))


def _others(trace: Trace, policy: Policy) -> Iterator[str]:
    """The same actions under the shipped policies."""
    for other in POLICIES.values():
        if other.name == policy.name:
            continue
        try:
            replayed = replay(trace, other)
        except IllegalAction as error:
            yield f"Under {other.name} this run is not possible: {error}."
            continue
        last = replayed.admissions[-1] if replayed.admissions else None
        told = f"L = {last.local}, E = {last.external}, R = {last.local + last.external}" if last else "admits nothing"
        names = ", ".join(dict.fromkeys(each.property for each in replayed.violations))
        yield f"Under {other.name}: {told}; {f'violates {names}' if names else 'violates nothing'}."
