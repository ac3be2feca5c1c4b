"""REACH of decisions: a policy reports at least what a baseline reports wherever the baseline is safe, or at least what
anyone could report who is safe.

All see the same cache and the same connector, which reaches a fixed boundary X: asked from a it answers max(0, X - a).
"""

from __future__ import annotations

from collections.abc import Iterator

import z3

from model.configuration import WorkerOrder
from model.policy import Policy
from properties.verdict import Verdict
from solver import laws
from solver.decide import Decider
from solver.decision import SMALL, WEAKEST, Admission, explore_admission
from solver.finding import Finding, combined, finding_of, resting_on
from solver.lookup_proof import examine_lookup
from solver.obligation import Assumption, Obligation
from solver.world import (
    ASYNCHRONOUS,
    CAP,
    COMMON,
    CONNECTED,
    COPIED_BEFORE_LOAD,
    DEEPEST,
    SHALLOWEST,
    B,
    Decision,
    N,
    decision_symbols,
    spec_symbols,
)

BASELINE = "the baseline"
ANYONE = "anyone"
X = z3.Int("external reach")
LACKING = spec_symbols("spec that lacks the baseline's boundary")
"""A spec for which what the baseline reports is not valid, if there is one."""


def examine_reach(policy: Policy, admission: Admission, baseline: Policy, decider: Decider) -> Finding:
    """Whether `policy` reports at least what `baseline` does, and non-zero hits of every kind that `baseline` has."""
    other = explore_admission(baseline, BASELINE)
    for missing in _kinds_out_of_reach(admission, other):
        return Finding(Verdict.VACUOUS, reason=f"{policy.name} never reports {missing}, which {baseline.name} does")
    obligations = (_same_cap(admission, other), *(_at_least(admission, other, order) for order in WorkerOrder))
    finding = combined(finding_of(decider.decide(obligation)) for obligation in obligations)
    if finding.verdict is Verdict.CTI:
        return Finding(Verdict.CTI, reason=f"not shown to report as much as {baseline.name}")
    lookup = examine_lookup(baseline, decider)
    return resting_on(finding, f"the lookup of {baseline.name}", combined((lookup.greatest, *lookup.member.values())))


def examine_greatest(policy: Policy, admission: Admission, decider: Decider) -> Finding:
    """Whether no safe boundary is greater than the one that `policy` reports.

    A connector that claims may be asked from a boundary that lies above what it reaches, and nobody asks twice; so of
    such a connector only those count that ask from the same boundary.
    """
    finding = combined(finding_of(decider.decide(_no_greater(admission, order))) for order in WorkerOrder)
    if finding.verdict is Verdict.CTI:
        return Finding(Verdict.CTI, reason=f"{policy.name} is not shown to report the greatest safe boundary")
    return finding


def _same_cap(admission: Admission, other: Admission) -> Obligation:
    """Else they would not see the same hits."""
    assumptions = (
        *laws.lookup_laws(WEAKEST.configuration_class),
        Assumption("policy", admission.formula),
        Assumption(BASELINE, other.formula),
    )
    return Obligation("both look up below the same cap", assumptions, other.decision.cap == CAP, SMALL)


def _answers(decision: Decision) -> z3.BoolRef:
    beyond = z3.If(X > decision.asked, X - decision.asked, 0)
    return decision.E == z3.If(CONNECTED, beyond, 0)


def _at_least(admission: Admission, other: Admission, order: WorkerOrder) -> Obligation:
    assumptions = (
        *_both_safe(admission.decision, other.decision, BASELINE, order),
        Assumption("policy", admission.formula),
        Assumption(BASELINE, other.formula),
    )
    goal = admission.decision.resume >= other.decision.resume
    return Obligation(f"R is at least the baseline's, {order.value}", assumptions, goal, SMALL)


def _no_greater(admission: Admission, order: WorkerOrder) -> Obligation:
    reported = decision_symbols(ANYONE)
    exact = z3.And(0 <= reported.asked, z3.Implies(reported.external != 0, laws.interval_is_exact(reported)))
    alike = z3.Implies(admission.decision.per_group, reported.asked == admission.decision.asked)
    assumptions = (
        *_both_safe(admission.decision, reported, ANYONE, order),
        Assumption(f"{ANYONE} uses an answer as it was given, or not at all", exact),
        Assumption(f"{ANYONE} asks a connector that claims from the same boundary", alike),
        Assumption("policy", admission.formula),
    )
    goal = admission.decision.resume >= reported.resume
    return Obligation(f"R is the greatest that is safe, {order.value}", assumptions, goal, SMALL)


def _both_safe(decision: Decision, reported: Decision, whose: str, order: WorkerOrder) -> tuple[Assumption, ...]:
    """What is known when the same connector answers a policy and somebody else, who is safe."""
    local, resume = reported.local, reported.resume
    valid = z3.And(laws.valid_for_full(local, WEAKEST.configuration_class), LACKING.valid(local))
    local_hit = z3.And(reported.external == 0, local > 0)
    hit_of_lacking = z3.And(SHALLOWEST <= LACKING.hit, LACKING.hit <= DEEPEST, LACKING.valid(LACKING.hit))
    return (
        *laws.lookup_laws(WEAKEST.configuration_class),
        *laws.common_hit_lemmas(WEAKEST.configuration_class),
        Assumption("finder: a hit is valid, and between the extremes", hit_of_lacking),
        Assumption("REACH: the common hit is the greatest", z3.Or(z3.Not(valid), local <= COMMON)),
        Assumption("the connector reaches X, which leaves a token to run", z3.And(0 <= X, X <= N - 1)),
        Assumption("the connector answers both alike", z3.And(_answers(decision), _answers(reported))),
        Assumption(f"{whose} is safe: without a load its boundary is valid", z3.Implies(local_hit, valid)),
        *_in_time(reported, resume, whose, order),
    )


def _in_time(reported: Decision, resume: z3.ArithRef, whose: str, order: WorkerOrder) -> tuple[Assumption, ...]:
    if order is WorkerOrder.LOAD_BEFORE_COPY:
        return (Assumption("worker: load before copy", COPIED_BEFORE_LOAD == 0),)
    stays = laws.column_ending_at(resume) == laws.column_ending_at(N)
    in_time = z3.Implies(reported.external > 0, z3.Or(ASYNCHRONOUS, stays))
    return (
        Assumption("worker: copy before load", z3.And(COPIED_BEFORE_LOAD == B, B > 0)),
        Assumption(f"{whose} is safe: its load is complete in time, whatever the first chunk", in_time),
    )


def _kinds_out_of_reach(admission: Admission, other: Admission) -> Iterator[str]:
    """Kinds of non-zero hits that the baseline reports and the policy does not."""
    for kind in _kinds(admission.decision):
        if _reports(other, kind) and not _reports(admission, kind):
            yield kind


def _kinds(decision: Decision) -> dict[str, z3.BoolRef]:
    local, external = decision.local, decision.external
    return {
        "a local hit": z3.And(local > 0, external == 0),
        "an external hit": z3.And(local == 0, external > 0),
        "a local and an external hit together": z3.And(local > 0, external > 0),
        "a divergent hit": z3.And(decision.per_group, local > SHALLOWEST, external > 0),
    }


def _reports(admission: Admission, kind: str) -> bool:
    decision = admission.decision
    assumptions = (
        *laws.lookup_laws(WEAKEST.configuration_class),
        *laws.common_hit_lemmas(WEAKEST.configuration_class),
        *laws.answer_laws(decision),
        Assumption("policy", admission.formula),
    )
    solver = z3.SimpleSolver()
    solver.add(*Obligation(kind, assumptions, z3.BoolVal(False)).exact.formulas, *SMALL, _kinds(decision)[kind])
    return bool(solver.check() == z3.sat)
