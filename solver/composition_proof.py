"""Findings about composites: what they claim (CAP-MEET), answer and hand out (LOAD-SOURCE, ASK-UNKNOWN)."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from model.policy import Policy
from properties.policy_guard import PolicyLoops, PolicyRaised
from properties.verdict import Verdict
from solver import answers, claims, trees
from solver.answers import Choice
from solver.decide import Decider
from solver.finding import Finding, combined, finding_of, resting_on, unknown
from solver.forking import Exploration
from solver.obligation import Assumption
from solver.totality import Part, examine_part

WITHIN = f"composites of at most {claims.LONGEST_LIST} children, nested to any depth"


@attrs.frozen
class CompositionFindings:
    """`claim` is CAP-MEET, `only_claimers` the half of it that loads rest on (solver/laws.py). `total` is POLICY-TOTAL
    for the parts that composites call. `choice` is None for a list-shaped policy."""

    claim: Finding
    only_claimers: Finding
    source: Finding
    again: Finding
    total: Finding
    choice: Choice | None
    assign: Exploration[None]


def examine_composition(policy: Policy, decider: Decider) -> CompositionFindings:
    """Everything about composites. Raises PolicyError for what cannot be made symbolic."""
    claim, only_claimers, claim_total = _examine_claims(policy, decider)
    assign = answers.explore_assign(policy)
    assign_total = examine_part(_part(policy, "assign", assign, (answers.ADOPTED,)), decider)
    handed_out = _resting(finding_of(decider.decide(answers.only_the_winner_loads(assign))), assign_total)
    choice: Choice | None = None
    if answers.folds_answers(policy):
        choice = answers.explore_step(policy)
        laws = answers.hypotheses(answers.SO_FAR, answers.CHILD)
        choice_total = examine_part(_part(policy, "choose_step", choice.exploration, laws), decider)
        chosen, again = (_resting(finding, choice_total) for finding in _examine_fold(policy, choice, decider))
    else:
        chosen, again, choice_total = _examine_list(policy)
    source = combined((chosen, handed_out))
    if source.verdict is Verdict.CTI:
        found = trees.search_answers(policy, "LOAD-SOURCE")
        source = found if isinstance(found, Finding) else attrs.evolve(source, reason=source.reason or found)
    total = combined((claim_total, assign_total, choice_total))
    return CompositionFindings(claim, only_claimers, source, again, total, choice, assign)


def _part(policy: Policy, name: str, exploration: Exploration[None], laws: tuple[Assumption, ...]) -> Part:
    return Part(name, exploration, laws, lambda: trees.search_answers(policy, "POLICY-TOTAL"))


def _resting(finding: Finding, total: Finding) -> Finding:
    return resting_on(finding, "POLICY-TOTAL", total)


_RETURNS = Finding(Verdict.PROVED, solvers=("z3", "cvc5"))
"""POLICY-TOTAL for parts that were run on every concrete value there is: nothing is left for a solver."""


def _examine_claims(policy: Policy, decider: Decider) -> tuple[Finding, Finding, Finding]:
    """CAP-MEET for composites, its half, and POLICY-TOTAL for the parts of a claim."""
    try:
        table = claims.reachable(policy) if claims.folds_claims(policy) else None
        if table is None:
            within = _claims_of_short_lists(policy)
            return within, within, _within(claims.ADVICE)
    except (PolicyRaised, PolicyLoops) as problem:
        nothing_known, total = _stopped(problem, lambda: trees.search_claims(policy, "POLICY-TOTAL"))
        return nothing_known, nothing_known, total
    half = combined(finding_of(decider.decide(obligation)) for obligation in claims.only_claimers(table))
    claim = combined((half, finding_of(decider.decide(claims.never_empty(table)))))
    if claim.verdict is Verdict.CTI:
        found = trees.search_claims(policy, "CAP-MEET")
        claim = found if isinstance(found, Finding) else attrs.evolve(claim, reason=found)
        half = half if half.proved else claim
    return claim, half, _RETURNS


def _stopped(problem: PolicyRaised | PolicyLoops, search: Callable[[], Finding | str]) -> tuple[Finding, Finding]:
    """What is known, and POLICY-TOTAL, when a part raises or does not end on a concrete value."""
    nothing_known = unknown(str(problem))
    if isinstance(problem, PolicyLoops):
        return nothing_known, nothing_known
    found = search()
    return nothing_known, found if isinstance(found, Finding) else Finding(Verdict.CTI, reason=f"{problem}; {found}")


def _claims_of_short_lists(policy: Policy) -> Finding:
    if claims.wrong_claim(policy) is None:
        return _within(claims.ADVICE)
    found = trees.search_claims(policy, "CAP-MEET")
    return found if isinstance(found, Finding) else Finding(Verdict.CTI, reason=found)


def _examine_fold(policy: Policy, choice: Choice, decider: Decider) -> tuple[Finding, Finding]:
    """LOAD-SOURCE and ASK-UNKNOWN of a choice that is a fold."""
    obligations = (answers.start_obligation(policy), *answers.step_obligations(choice))
    source = combined(finding_of(decider.decide(obligation)) for obligation in obligations)
    again = finding_of(decider.decide(answers.asks_again(choice)))
    if again.verdict is Verdict.CTI:
        again = attrs.evolve(again, reason="a child that does not know yet is passed over, and not asked again")
    return source, again


def _examine_list(policy: Policy) -> tuple[Finding, Finding, Finding]:
    """LOAD-SOURCE, ASK-UNKNOWN and POLICY-TOTAL of a choice from the whole list, run for short lists."""
    within = _within(answers.ADVICE)
    try:
        wrong = answers.wrong_answer(policy)
    except (PolicyRaised, PolicyLoops) as problem:
        nothing_known, total = _stopped(problem, lambda: trees.search_answers(policy, "POLICY-TOTAL"))
        return nothing_known, nothing_known, total
    if wrong is None:
        return within, within, within
    return Finding(Verdict.CTI, reason=f"the answers {wrong} become one that no leaf gave"), within, within


def _within(advice: str) -> Finding:
    return Finding(Verdict.HOLDS_WITHIN, reason=advice, scope=WITHIN)
