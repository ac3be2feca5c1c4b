"""Failed cells are traced: backwards to where they come from, forwards to a run that violates the property.

A counterexample to induction (CTI) may be unreachable. Backwards, it becomes a concrete state of a small instance, with
what leads there and with what the model does from it (origin.py). Forwards, the exhaustive search looks at every run of
a few small scopes, and fuzz at random runs with the features that the action is about. Only a run of the model from its
initial state is a violation: its trace is replayed. Otherwise the cell stays a CTI.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

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
from solver.soundness.cells import INITIALLY
from solver.soundness.engine_state import scopes
from solver.soundness.forwards import seek_violation
from solver.soundness.origin import origin_of
from solver.soundness.proof import CellFinding, Soundness

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
        if cell.action is not INITIALLY and cell.action.name not in traced_back:
            progress(f"trace back: {cell.action.name}")
            traced_back.add(cell.action.name)
            cell = _with_origin(cell, soundness, aim)
        sought = FEATURES.get(cell.action.name, frozenset()), cell.invariant.property
        if sought not in found:
            progress(f"look for {cell.invariant.property} in runs of the model")
            found[sought] = _run(aim, *sought)
        cells[place] = _judged(cell, *found[sought])
    return attrs.evolve(soundness, cells=cells)


def _with_origin(cell: CellFinding, soundness: Soundness, aim: Aim) -> CellFinding:
    """The cell told as a concrete state; as it was told before if the small instance has none."""
    actions, invariants = soundness.actions[1:], soundness.invariants
    origin = origin_of(cell.action, cell.invariant, actions, invariants, aim.policy, aim.release)
    if origin is None:
        reason = (
            f"{cell.finding.reason}\n  in a small instance nothing breaks it: it takes more blocks, requests or tokens"
        )
        return attrs.evolve(cell, finding=attrs.evolve(cell.finding, reason=reason))
    return attrs.evolve(cell, finding=attrs.evolve(cell.finding, reason="\n".join(origin.lines)), origin=origin)


def _judged(cell: CellFinding, trace: Trace | None, searched: str) -> CellFinding:
    outcome = f"a run of the model violates {cell.invariant.property}" if trace else "no run of the model shows it"
    reason = f"{cell.finding.reason}\n{outcome} ({searched})"
    verdict = Verdict.VIOLATED if trace else Verdict.CTI
    return attrs.evolve(cell, finding=attrs.evolve(cell.finding, verdict=verdict, reason=reason, trace=trace))


def _run(aim: Aim, features: frozenset[Feature], property: str) -> tuple[Trace | None, str]:
    """A shortest run of the model that violates `property`, replayed, and how far it was looked for: the exhaustive
    search goes first, in scopes without the features, which it does not know."""
    policy = guarded(aim.policy)
    looked = [seek_violation(scope, policy, property) for scope in scopes(aim.release)]
    runs = [(trace, searched) for trace, searched in looked if trace is not None]
    if runs:
        return min(runs, key=lambda run: len(run[0].actions))
    trace, sampled = _fuzzed(aim, features, property)
    return trace, sampled if trace else "; ".join((*(searched for _, searched in looked), sampled))


def _fuzzed(aim: Aim, features: frozenset[Feature], property: str) -> tuple[Trace | None, str]:
    one, tails = ConfigurationClass.ONE_ATTENTION_SPEC, ConfigurationClass.ONE_ATTENTION_SPEC_PARTIAL_TAILS
    kind = tails if Feature.PARTIAL_TAILS in features else one
    setting = Setting(Contract.ENDPOINT, WorkerOrder.LOAD_BEFORE_COPY, kind)
    policy = guarded(aim.policy)
    campaign = Campaign(policy, setting, Eviction.ADVERSARIAL, features=features, release=aim.release)
    trace = seek(campaign, (property, None), PROFILE, PROFILE.seed or 0)
    searched = f"{campaign.runs} runs with {campaign.actions} actions, {campaign.words}"
    return (confirmed(policy, property, None, trace) if trace else None), searched
