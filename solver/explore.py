"""The engine `explore`: every reachable state of a small scope, as results of the common schema. Start reading here.

scope -> codec (states as bytes) -> successors (the readable model) or memo (the same, computed once for look-alikes)
-> search (breadth first) -> results, each violation with a shortest trace that was replayed on the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from model.configuration import ConfigurationClass, WorkerOrder
from model.connector import Contract, leaves_of
from model.errors import IllegalAction
from model.policy import Policy
from model.trace import Expectation, Trace
from properties.catalogue import EVENTS, INVARIANTS, Setting, Status, applicable_events
from properties.replay import replay
from properties.requirements import about, concerns
from properties.verdict import Cell, Result, Verdict
from solver.checkpoint import read_checkpoint, write_checkpoint
from solver.codec import CodecFault
from solver.livelock import Lasso, find_livelock
from solver.original_names import actions_of
from solver.remembered_policy import remembered
from solver.scope import Scope
from solver.search import FULL, LIMITS, Limits, Reached, Search, Signature, Symmetry

ENGINE = "explore"

HITS = ("LOCAL-HIT", "LOCAL-AND-EXTERNAL-HIT", "DIVERGENT-HIT")
"""Without any of these events a scope says nothing about hits."""

PROGRESS = "PROGRESS"

SAVED_GROWTH = 1.2
"""A checkpoint is written when the search has grown by this factor: writing takes a bounded share of the time."""


def explore(
    policy: Policy,
    scope: Scope,
    *,
    symmetry: Symmetry = FULL,
    limits: Limits = LIMITS,
    checkpoint: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Result, ...]:
    """Search the scope under the policy: a result per violation, per property that held, and per event to be reached.

    With a `checkpoint`, go on from that file if it exists, and write it now and then and at the end. Raises
    CheckpointError, ScopeError or CodecFault.
    """
    return results_of(
        searched(policy, scope, symmetry=symmetry, limits=limits, checkpoint=checkpoint, progress=progress), policy
    )


def searched(
    policy: Policy,
    scope: Scope,
    *,
    symmetry: Symmetry = FULL,
    limits: Limits = LIMITS,
    checkpoint: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Search:
    """The search that `explore` reports on."""
    search = Search(scope, remembered(policy), symmetry)
    if checkpoint is not None and checkpoint.exists():
        read_checkpoint(search, policy, checkpoint)
    progress(f"explore {policy.name}: {scope.name}")

    saved = search.reached.expanded

    def save() -> None:
        nonlocal saved
        if checkpoint is not None and search.reached.expanded > saved * SAVED_GROWTH:
            write_checkpoint(search, policy, checkpoint)
            saved = search.reached.expanded

    search.run(limits, progress, save)
    if checkpoint is not None:
        write_checkpoint(search, policy, checkpoint)
    return search


def results_of(search: Search, policy: Policy, *, asked_for: bool = False) -> tuple[Result, ...]:
    """What a search has found out so far. A scope that somebody asked for is required to hold whatever its cell."""
    reached, scope = search.reached, search.scope
    base = Result(
        property="",
        engine=ENGINE,
        verdict=Verdict.HOLDS_WITHIN,
        required=asked_for or _required(scope),
        cell=_cell(scope),
        scope=_told(search),
        detail=_counts(reached),
    )
    violated = tuple(_violated(base, search, policy))
    livelock = find_livelock(reached, search.codec, search.sorter.classes if search.sorter else ())
    if livelock is not None and PROGRESS not in {result.property for result in violated}:
        violated = (*violated, _livelocked(base, search, policy, livelock))
    return (*violated, *_held(base, reached, {result.property for result in violated}), *_events(base, search, policy))


def _violated(base: Result, search: Search, policy: Policy) -> Iterator[Result]:
    for signature, (state, number) in search.reached.violations.items():
        property, case = signature
        if not concerns(policy, case):
            continue
        found = attrs.evolve(about(base, property), case=case)
        trace = _trace(search, policy, signature, (*search.path(state), number))
        if trace is None:
            reason = "violated in the search, and not when its trace is replayed; does the policy keep state?"
            yield attrs.evolve(found, verdict=Verdict.UNKNOWN, reason=reason)
            continue
        detail = {**base.detail, "actions": len(trace.actions), "times": search.reached.violated[signature]}
        yield attrs.evolve(found, verdict=Verdict.VIOLATED, reason=trace.title, trace=trace, detail=detail)


def _trace(search: Search, policy: Policy, signature: Signature, numbers: tuple[int, ...]) -> Trace | None:
    """The trace of a path with what it violates, if it violates the property again when it is replayed."""
    try:
        trace = Trace("", search.scope.configuration, actions_of(search, numbers))
        violations = replay(trace, policy).violations
    except (CodecFault, IllegalAction):
        return None
    found = next((v for v in violations if (v.property, v.case) == signature), None)
    if found is None:
        return None
    names = tuple(sorted({violation.property for violation in violations}))
    return attrs.evolve(
        trace, title=found.message, source=ENGINE, expectations=(Expectation(policy.name, violates=names),)
    )


def _livelocked(base: Result, search: Search, policy: Policy, lasso: Lasso) -> Result:
    actions = actions_of(search, (*search.path(lasso.entry), *lasso.cycle))
    title = f"the last {len(lasso.cycle)} actions lead back to where they began, and no request ever ends"
    if not lasso.certain:
        reason = f"{title}, unless a load never ends; search without symmetry to tell"
        return attrs.evolve(base, property=PROGRESS, verdict=Verdict.UNKNOWN, reason=reason)
    trace = Trace(title, search.scope.configuration, actions, (Expectation(policy.name),), ENGINE)
    return attrs.evolve(base, property=PROGRESS, verdict=Verdict.VIOLATED, reason=title, trace=trace)


def _held(base: Result, reached: Reached, violated: set[str]) -> Iterator[Result]:
    """Checked properties without a violation: as far as was searched, and if there was a hit at all."""
    for invariant in INVARIANTS.values():
        if invariant.status is not Status.CHECKED or invariant.id in violated:
            continue
        held = about(base, invariant.id)
        if reached.depth == 0:
            reason = f"nothing was searched as a whole: {reached.stopped}"
            held = attrs.evolve(held, verdict=Verdict.UNKNOWN, scope="", reason=reason)
        elif not any(reached.met[event] for event in HITS):
            held = attrs.evolve(held, verdict=Verdict.VACUOUS, reason="no hit occurs here; use longer or more prompts")
        yield held


def _events(base: Result, search: Search, policy: Policy) -> Iterator[Result]:
    """Events that the scope has to reach, where they apply to the policy."""
    reached, scope = search.reached, search.scope
    setting = Setting(policy, scope.configuration.configuration_class, scope.configuration.eviction)
    for name in sorted(applicable_events(setting).intersection(scope.reaches)):
        result = attrs.evolve(base, property=name, detail={"kind": "sometimes", "times": reached.met[name]})
        if not reached.met[name]:
            never = "never happens in this scope" if reached.complete else "was not reached before the limit"
            # Beyond a violation nothing is searched, so it may hide the event.
            verdict = Verdict.VACUOUS if reached.complete and not reached.cut else Verdict.UNKNOWN
            result = attrs.evolve(result, verdict=verdict, reason=never)
        yield result


def _cell(scope: Scope) -> Cell:
    configuration = scope.configuration
    connector = configuration.connector
    kept = [leaf.contract for leaf in leaves_of(connector) if not leaf.claims] if connector is not None else []
    return Cell(min(kept, default=Contract.FULL), configuration.worker_order, configuration.configuration_class)


def _required(scope: Scope) -> bool:
    """Whether every policy has to hold here: in the cells that the required one implies, with honest leaves."""
    cell, connector = _cell(scope), scope.configuration.connector
    honest = connector is None or all(leaf.honest for leaf in leaves_of(connector))
    return (
        honest
        and cell.worker_order is WorkerOrder.LOAD_BEFORE_COPY
        and cell.configuration_class is ConfigurationClass.ONE_ATTENTION_SPEC
    )


def _told(search: Search) -> str:
    reached = search.reached
    counts = f"{len(reached.codes):,} states, {reached.transitions:,} transitions"
    cut = f"; {reached.cut:,} transitions into something wrong are not followed" if reached.cut else ""
    if reached.complete:
        return f"scope {search.scope.name}: every reachable state ({counts}, depth {len(reached.levels) - 1}){cut}"
    return f"scope {search.scope.name}: runs of at most {reached.depth} actions ({counts}; {reached.stopped}){cut}"


def _counts(reached: Reached) -> dict[str, object]:
    return {
        "states": len(reached.codes),
        "transitions": reached.transitions,
        "depth": len(reached.levels) - 1,
        "complete": reached.complete,
        "actions_fired": {name.lower(): count for name, count in sorted(reached.fired.items()) if count},
        "events_met": {name: reached.met[name] for name in EVENTS if reached.met[name]},
        "violated": {
            f"{property}{f' ({case.value})' if case else ''}": count
            for (property, case), count in sorted(reached.violated.items(), key=str)
        },
    }
