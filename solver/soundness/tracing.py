"""Where a failed cell comes from: the solver steps back from its state, and runs of the model look for the fault.

A counterexample to induction (CTI) may be unreachable. Backwards, the solver looks for a state that satisfies every
invariant and for an action that makes the next one possible. Forwards, fuzz runs the model from its initial state with
the features that the action is about, until the property of the invariant is violated. Only that is a violation: its
trace is replayed. Otherwise the cell stays a CTI, and is told with how far back it was traced.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import z3

from model.configuration import ConfigurationClass, Eviction, WorkerOrder
from model.connector import Contract
from model.policy import Policy
from model.release import Release
from model.trace import Trace
from properties.features import Feature
from properties.fuzz import Profile, seek
from properties.machine import Campaign
from properties.policy_guard import guarded
from properties.verdict import Cell as Setting
from properties.verdict import Verdict
from solver.confirm import confirmed
from solver.decide import Z3_RLIMIT
from solver.soundness.cells import BASE, BEFORE, INITIALLY, unknowns
from solver.soundness.invariants import Invariant
from solver.soundness.proof import CellFinding, Soundness
from solver.soundness.terms import BLOCK, ENTRY, KEY, REQUEST, Kind, Terms, Universal
from solver.soundness.transition import Action, Transition

DEPTH = 2
"""Most actions that are put before the one that fails."""

PROFILE = Profile("aimed", runs=100, actions=18, series=4, seed=0, needs_events=False)

_LOADS = frozenset({Feature.STEPS_IN_FLIGHT, Feature.FAILED_BLOCKS})
_TAILS = frozenset({Feature.PARTIAL_TAILS})
_DRAFTED_TAILS = frozenset({Feature.PARTIAL_TAILS, Feature.DRAFT_MODEL})

FEATURES: dict[str, frozenset[Feature]] = {
    **dict.fromkeys(("start loading", "load begins", "load commits", "load fails", "abort loading"), _LOADS),
    **dict.fromkeys(("end step", "lose step"), _LOADS),
    **dict.fromkeys(("save begins", "save ends"), frozenset({Feature.STORES})),
    **dict.fromkeys(("publish tail", "copy for reader", "copy for producer"), _TAILS),
    "publish checkpoint": _TAILS | {Feature.INTERNAL_CHECKPOINT},
    **dict.fromkeys(("verify drafts", "relocate"), frozenset({Feature.SPECULATION})),
    "forward chunk": _DRAFTED_TAILS,
    "free": frozenset({Feature.STEPS_IN_FLIGHT, Feature.INTERRUPTIONS}),
    "retire": frozenset({Feature.STEPS_IN_FLIGHT}),
}
"""What is drawn in search of a fault of an action; for the others nothing beyond the plain model."""


@attrs.frozen
class Aim:
    """The model in which a fault is looked for: a policy and the rules of a release."""

    policy: Policy
    release: Release


def traced(soundness: Soundness, aim: Aim, progress: Callable[[str], None] = lambda _: None) -> Soundness:
    """The same, with failed cells traced: VIOLATED where a run of the model violates the invariant's property, else
    still CTI. Of each action one cell is traced back, and for each property one run is looked for."""
    cells = dict(soundness.cells)
    found: dict[tuple[frozenset[Feature], str], tuple[Trace | None, str]] = {}
    traced_back: set[str] = set()
    for place, cell in soundness.cells.items():
        if cell.verdict is not Verdict.CTI:
            continue
        words = []
        if cell.action is not INITIALLY and cell.action.name not in traced_back:
            progress(f"trace back: {cell.action.name}")
            traced_back.add(cell.action.name)
            words.append(_back(trace_back(cell.action, cell.invariant, soundness.actions[1:], soundness.invariants)))
        sought = FEATURES.get(cell.action.name, frozenset()), cell.invariant.property
        if sought not in found:
            progress(f"look for {cell.invariant.property} in runs of the model")
            found[sought] = _run(aim, *sought)
        cells[place] = _judged(cell, words, *found[sought])
    return attrs.evolve(soundness, cells=cells)


def _judged(cell: CellFinding, words: list[str], trace: Trace | None, searched: str) -> CellFinding:
    outcome = f"a run of the model violates {cell.invariant.property}" if trace else "no run of the model shows it"
    reason = "\n".join((cell.finding.reason, *words, f"  {outcome} ({searched})"))
    verdict = Verdict.VIOLATED if trace else Verdict.CTI
    return attrs.evolve(cell, finding=attrs.evolve(cell.finding, verdict=verdict, reason=reason, trace=trace))


def _back(chain: tuple[Action, ...]) -> str:
    if not chain:
        return "  traced back: no action makes that state possible"
    return f"  traced back {len(chain)} of at most {DEPTH} actions: {', then '.join(each.name for each in chain)}"


def trace_back(
    action: Action, invariant: Invariant, actions: Sequence[Action], invariants: Sequence[Invariant]
) -> tuple[Action, ...]:
    """Actions that lead to the one that fails, each of which makes the next one possible, at most DEPTH."""
    chain: tuple[Action, ...] = ()
    while len(chain) < DEPTH:
        leading = next((each for each in actions if _leads((each, *chain, action), invariant, invariants)), None)
        if leading is None:
            break
        chain = (leading, *chain)
    return chain


def _leads(chain: tuple[Action, ...], invariant: Invariant, invariants: Sequence[Invariant]) -> bool:
    """Whether the actions of `chain`, one after another, break the invariant, and the second of them was not possible
    before the first. What the solver cannot decide may be so."""
    choice = unknowns(invariant.variables, "any")
    arguments = [unknowns(each.arguments, f"{number}. ") for number, each in enumerate(chain)]
    states, steps = [BEFORE], list[Transition]()
    for each, given in zip(chain, arguments, strict=True):
        steps.append(each.of(states[-1], *given))
        states.append(steps[-1].after)
    terms = _terms([(invariant.variables, choice), *zip((each.arguments for each in chain), arguments, strict=True)])
    terms = functools.reduce(lambda known, step: known.with_more(step.terms), steps, terms)
    statements: list[Universal] = [*BASE]
    statements += [each.of(state) for state in states[:-1] for each in invariants]
    statements += [own for step in steps for own in (*step.guards, *step.choices)]
    too_early = chain[1].of(BEFORE, *arguments[1])
    solver = z3.SimpleSolver()
    solver.set("rlimit", Z3_RLIMIT)
    solver.add(*(statement.at(terms) for statement in statements))
    solver.add(z3.Not(z3.And(*(guard.at(terms) for guard in too_early.guards))))
    return bool(solver.check(z3.Not(invariant.holds(states[-1], *choice))) != z3.unsat)


def _terms(given: Sequence[tuple[tuple[Kind, ...], tuple[Any, ...]]]) -> Terms:
    pairs = [pair for kinds, terms in given for pair in zip(kinds, terms, strict=True)]
    terms = Terms({kind: tuple(term for of, term in pairs if of is kind) for kind in Kind})
    terms = terms.with_more({KEY: tuple(BEFORE.full_hash(block) for block in terms.of(BLOCK))})
    return terms.with_more({REQUEST: tuple(entry.request for entry in terms.of(ENTRY))})


def _run(aim: Aim, features: frozenset[Feature], property: str) -> tuple[Trace | None, str]:
    """A run of the model that violates `property`, replayed, and how far it was looked for."""
    one, tails = ConfigurationClass.ONE_ATTENTION_SPEC, ConfigurationClass.ONE_ATTENTION_SPEC_PARTIAL_TAILS
    kind = tails if Feature.PARTIAL_TAILS in features else one
    setting = Setting(Contract.ENDPOINT, WorkerOrder.LOAD_BEFORE_COPY, kind)
    policy = guarded(aim.policy)
    campaign = Campaign(policy, setting, Eviction.ADVERSARIAL, features=features, release=aim.release)
    trace = seek(campaign, (property, None), PROFILE, PROFILE.seed or 0)
    searched = f"{campaign.runs} runs with {campaign.actions} actions, {campaign.words}"
    return (confirmed(policy, property, None, trace) if trace else None), searched
