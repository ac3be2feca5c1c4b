"""The engine `corpus`: replays every trace of the corpus under a policy.

Where a trace states what the policy does, it must do that; where a trace lies in the required cell, it must violate
nothing. Neither is a proof: it is the policy on real input.
"""

from __future__ import annotations

from pathlib import Path

import attrs

from hitbound.corpus import corpus
from hitbound.expectation import unmet
from model.configuration import Configuration, Scheduling
from model.connector import leaves_of
from model.errors import HitboundError, IllegalAction
from model.policy import Policy
from model.release import NEWEST
from model.trace import Expectation, Trace
from properties.catalogue import INVARIANTS
from properties.policy_guard import PolicyLoops
from properties.replay import Replay, replay
from properties.requirements import concerns, is_required
from properties.trace_document import read_trace
from properties.verdict import REQUIRED_CELL, Result, Verdict

ENGINE = "corpus"


class CorpusError(HitboundError):
    """A folder of traces in which there is none."""


EXPECTATION = "EXPECTATION"
"""Property of a trace that states what a policy does: it does that."""


def check_corpus(policy: Policy) -> tuple[Result, ...]:
    """One result per violated property, with its first trace, and per property that held on all traces that count.

    A trace that is not possible under the policy (it evicts what was never cached, say) does not count. A policy that
    does not end is UNKNOWN. Raises PolicyError.
    """
    violated: dict[str, Result] = {}
    counted = 0
    for trace in corpus():
        try:
            replayed = replay(trace, policy)
        except PolicyLoops as loops:
            return (_result("POLICY-TOTAL", Verdict.UNKNOWN, reason=str(loops)),)
        except IllegalAction:
            if expectation_of(trace, policy) is None:
                continue
            raise
        for property, reason in _broken(trace, policy, replayed):
            if property not in violated:
                violated[property] = _violated(trace, policy, replayed, property, reason)
        counted += _in_required_cell(trace.configuration)
    if not counted:
        reason = "the corpus has no trace in this cell that is possible under this policy"
        return (*violated.values(), _result(EXPECTATION, Verdict.VACUOUS, reason=reason))
    checked = [invariant.id for invariant in INVARIANTS.values() if invariant.predicate is not None]
    held = [property for property in (*checked, EXPECTATION) if property not in violated]
    scope = f"{counted} traces of the corpus"
    return (*violated.values(), *(_result(property, Verdict.HOLDS_WITHIN, scope=scope) for property in held))


def check_folder(policy: Policy, folder: Path) -> tuple[Result, ...]:
    """The traces of a folder of the user's: each must meet what it states about the policy, else violate nothing.

    A trace that cannot be replayed under the policy shows nothing, which is not the same as success. Raises
    PolicyError, TraceDocumentError and CorpusError.
    """
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise CorpusError(f"{folder}: there is no trace (*.json) in this folder; add one, or leave `corpus` out")
    scope = f"{len(paths)} trace{'s' if len(paths) > 1 else ''} of {folder}"
    results: list[Result] = []
    for path in paths:
        trace = read_trace(path)
        try:
            replayed = replay(trace, policy)
        except (IllegalAction, PolicyLoops) as error:
            verdict = Verdict.VACUOUS if isinstance(error, IllegalAction) else Verdict.UNKNOWN
            reason = f"{path} cannot be replayed under this policy, so it shows nothing: {error}"
            results.append(attrs.evolve(_result(EXPECTATION, verdict, reason=reason), cell=None))
            continue
        expected = expectation_of(trace, policy)
        broken = [(EXPECTATION, difference) for difference in unmet(expected, replayed)] if expected else []
        if expected is None:
            broken = _violations(policy, replayed)
        for property, reason in dict(reversed(broken)).items():
            violated = _violated(trace, policy, replayed, property, f"{path}: {reason}")
            results.append(attrs.evolve(violated, cell=None))
    held = Result(property=EXPECTATION, engine=ENGINE, verdict=Verdict.HOLDS_WITHIN, required=True, scope=scope)
    return tuple(results) or (held,)


def expectation_of(trace: Trace, policy: Policy) -> Expectation | None:
    """What the trace states about the policy, or about the one of an earlier release that decides the same."""
    names = {policy.name, getattr(policy, "decides_as", "")}
    return next((expected for expected in trace.expectations if expected.policy in names), None)


def _broken(trace: Trace, policy: Policy, replayed: Replay) -> list[tuple[str, str]]:
    """Property and reason of all that is wrong with the replay of one trace."""
    expected = expectation_of(trace, policy)
    broken = [(EXPECTATION, difference) for difference in unmet(expected, replayed)] if expected else []
    if _in_required_cell(trace.configuration):
        broken += _violations(policy, replayed)
    return broken


def _violations(policy: Policy, replayed: Replay) -> list[tuple[str, str]]:
    """Property and message of each violation that is one of the policy."""
    return [(each.property, each.message) for each in replayed.violations if concerns(policy, each.case)]


def _in_required_cell(configuration: Configuration) -> bool:
    """A trace under older rules, or with what is switched on for it, shows what that does, not the policy."""
    honest = configuration.connector is None or all(leaf.honest for leaf in leaves_of(configuration.connector))
    return (
        honest
        and configuration.release == NEWEST
        and configuration.scheduling is Scheduling.FCFS
        and configuration.worker_order is REQUIRED_CELL.worker_order
        and configuration.configuration_class is REQUIRED_CELL.configuration_class
    )


def _violated(trace: Trace, policy: Policy, replayed: Replay, property: str, reason: str) -> Result:
    cases = [violation.case for violation in replayed.violations if violation.property == property]
    if property != EXPECTATION:
        names = tuple(sorted({violation.property for violation in replayed.violations}))
        trace = attrs.evolve(trace, expectations=(Expectation(policy.name, violates=names),))
    case = cases[0] if cases else None
    return attrs.evolve(_result(property, Verdict.VIOLATED, reason=reason), case=case, trace=trace)


def _result(property: str, verdict: Verdict, *, scope: str = "", reason: str = "") -> Result:
    return Result(
        property=property,
        engine=ENGINE,
        verdict=verdict,
        required=is_required(property),
        cell=REQUIRED_CELL,
        scope=scope,
        reason=reason,
    )
