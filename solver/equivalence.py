"""Whether two policies decide alike, part by part, for every size, width and depth.

Tells a mutant, or a guard that was dropped, that changes nothing from one that no obligation notices.
"""

from __future__ import annotations

import attrs
import z3

from model.policy import Policy
from properties.policy_guard import part_of
from solver import answers, laws
from solver.answers import CHILD, SO_FAR, Choice
from solver.claims import Table, folds_claims, reachable
from solver.decide import Decided, Decider, Outcome
from solver.decision import SMALL, WEAKEST, Admission, explore_admission
from solver.forking import Exploration
from solver.obligation import Assumption, Obligation
from solver.reconcile import Step, explore_accept
from solver.world import CAP, CONNECTED

OTHER = "the other policy"


def decide_equivalence(policy: Policy, other: Policy, decider: Decider) -> Decided:
    """Whether both decide alike in every situation. Raises what exploring them raises."""
    obligations = (
        same_admission(explore_admission(policy), explore_admission(other, OTHER)),
        same_step(explore_accept(policy), explore_accept(other, OTHER)),
        same_choice(answers.explore_step(policy), answers.explore_step(other, OTHER)),
        same_assignment(answers.explore_assign(policy), answers.explore_assign(other, OTHER)),
        answers.start_obligation(other),
    )
    cores: list[str] = []
    for obligation in obligations:
        decided = decider.decide(obligation)
        if decided.outcome is not Outcome.HOLDS:
            return attrs.evolve(decided, reason=decided.reason or f"not shown: {obligation.title}")
        cores += decided.core
    if not _claim_alike(policy, other):
        return Decided(Outcome.FAILS, reason="not shown: composites claim alike")
    return attrs.evolve(decided, core=tuple(dict.fromkeys(cores)))


def same_admission(one: Admission, other: Admission) -> Obligation:
    """Given the same hits and the same answer, both adopt the same."""
    first, second = one.decision, other.decision
    alike = z3.And(
        second.cap == CAP,
        z3.Implies(CONNECTED, z3.And(first.per_group == second.per_group, first.asked == second.asked)),
        first.local == second.local,
        first.external == second.external,
    )
    assumptions = (
        *laws.lookup_laws(WEAKEST.configuration_class),
        *laws.common_hit_lemmas(WEAKEST.configuration_class),
        *laws.answer_laws(first),
        Assumption("the same answer", first.E == second.E),
        Assumption("policy", one.formula),
        Assumption(OTHER, other.formula),
    )
    return Obligation("both policies admit alike", assumptions, alike, SMALL)


def same_step(one: Step, other: Step) -> Obligation:
    """Both make the same of a candidate."""
    searched = attrs.evolve(one, bounds=one.bounds + other.bounds)
    assumptions = (*searched.laws, Assumption("policy", one.formula), Assumption(OTHER, other.formula))
    return Obligation("both policies accept alike", assumptions, one.result == other.result, SMALL)


def same_choice(one: Choice, other: Choice) -> Obligation:
    """Both make the same of one more answer; who stands behind no tokens does not matter."""
    first, second = one.result, other.result
    load = z3.And(first.asynchronous == second.asynchronous, first.source == second.source)
    alike = z3.And(
        first.unknown == second.unknown,
        z3.Implies(z3.Not(first.unknown), z3.And(first.tokens == second.tokens, z3.Implies(first.tokens > 0, load))),
    )
    assumptions = (
        *answers.hypotheses(SO_FAR, CHILD),
        Assumption("no child is asked after an unknown answer", z3.Not(SO_FAR.unknown)),
        Assumption("policy", one.formula),
        Assumption(OTHER, other.formula),
    )
    return Obligation("both policies choose alike", assumptions, alike)


def same_assignment(one: Exploration[None], other: Exploration[None]) -> Obligation:
    """Both tell a child the same."""
    assumptions = (
        answers.ADOPTED,
        Assumption("policy", one.formula),
        Assumption(OTHER, other.formula),
    )
    return Obligation("both policies assign alike", assumptions, answers.told() == answers.told(OTHER))


def _claim_alike(policy: Policy, other: Policy) -> bool:
    """Whether the two claim folds agree on every list of children."""
    if not (folds_claims(policy) and folds_claims(other)):
        return False
    if part_of(policy, "choose_start").unknown != part_of(other, "choose_start").unknown:
        return False
    one, two = reachable(policy), reachable(other)
    if one is None or two is None:
        return False
    return all(one.claims[a] == two.claims[b] for a, b in _pairs(one, two))


def _pairs(one: Table, two: Table) -> set[tuple[int, int]]:
    """Accumulators that the folds have after the same children."""
    start = (one.rows[0].accumulator, two.rows[0].accumulator)
    reached, pending = {start}, [start]
    while pending:
        a, b = pending.pop()
        for claims in (True, False):
            after = (one.after[a, claims], two.after[b, claims])
            if after not in reached:
                reached.add(after)
                pending.append(after)
    return reached
