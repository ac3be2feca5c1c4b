"""Mutants of vllm-0.28: each is violated, with a trace, or is proved equivalent."""

from __future__ import annotations

import pytest

from model.policies.mutants import EQUIVALENT, FALLS, MUTANTS
from model.policies.vllm import Vllm028
from model.policy import UNKNOWN, Answer, Summary
from properties.replay import replay
from properties.verdict import REQUIRED_CELL, Case, Verdict
from solver.decide import Decider, Outcome
from solver.equivalence import decide_equivalence
from solver.prove import prove
from tests.proofs import mutant_proof, violated

pytestmark = pytest.mark.mutants


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_violated_where_its_guard_was(name: str) -> None:
    assert set(FALLS[name]) <= {property for property, _ in violated(mutant_proof(name))}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_comes_with_traces_that_show_it(name: str) -> None:
    for result in mutant_proof(name):
        if result.verdict is Verdict.VIOLATED:
            assert result.trace is not None
            assert len(result.trace.actions) <= 8
            again = {(found.property, found.case) for found in replay(result.trace, MUTANTS[name]).violations}
            assert any(property == result.property and result.case in (None, case) for property, case in again)


@pytest.mark.parametrize("name", EQUIVALENT)
def test_a_mutant_that_changes_nothing_is_proved_equivalent(name: str) -> None:
    decided = decide_equivalence(Vllm028(), EQUIVALENT[name], Decider())
    assert decided.outcome is Outcome.HOLDS
    assert decided.solvers == ("z3", "cvc5")


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_that_falls_is_not_called_equivalent(name: str) -> None:
    assert decide_equivalence(Vllm028(), MUTANTS[name], Decider()).outcome is not Outcome.HOLDS


def test_an_empty_composite_that_claims_breaks_cap_meet_only() -> None:
    missed = {result.property for result in mutant_proof("empty composite claims") if result.verdict is Verdict.UNKNOWN}
    assert violated(mutant_proof("empty composite claims")) == {("CAP-MEET", None)}
    assert not missed


def test_any_for_all_lets_an_incapable_winner_overstate_the_hit() -> None:
    assert ("HIT-RESUME", Case.EXTERNAL) in violated(mutant_proof("any() for all()"))


def test_what_rests_on_a_lemma_that_fell_is_not_proved() -> None:
    resting = {
        result.property
        for result in mutant_proof("first answer with last load")
        if result.required and result.verdict is Verdict.UNKNOWN and "LOAD-SOURCE" in result.reason
    }
    assert resting == {"HIT-RESUME", "HIT-COVER", "HIT-LAST"}


class UnknownPassedOver(Vllm028):
    """A child that does not know yet counts as one that has nothing."""

    name = "unknown passed over"

    def choose_step(self, acc: Answer, child_answer: Answer) -> Answer:
        if child_answer.unknown:
            return acc
        return acc if acc.tokens > 0 else child_answer


class KnownAgain(Vllm028):
    """An unknown answer is forgotten when the next child answers: only the last child's counts."""

    name = "last child only"

    def choose_step(self, acc: Answer, child_answer: Answer) -> Answer:
        return UNKNOWN if child_answer.unknown else child_answer


@pytest.mark.parametrize("policy", [UnknownPassedOver(), KnownAgain()], ids=lambda policy: policy.name)
def test_passing_over_an_unknown_answer_breaks_the_protocol_but_no_safety(policy: Vllm028) -> None:
    verdicts = {
        result.property: result.verdict for result in prove(policy, cells=(REQUIRED_CELL,)) if result.cell is None
    }
    assert verdicts["ASK-UNKNOWN"] is Verdict.CTI
    assert {verdict for property, verdict in verdicts.items() if property != "ASK-UNKNOWN"} == {Verdict.PROVED}


class WithoutClamp(Vllm028):
    """Takes an answer that leaves no token to run: the connector's duty is the policy's too."""

    name = "trusting"

    def settle(self, L: int, diverged: bool, asked: int, E: int, summary: Summary, N: int) -> tuple[int, int]:
        if E > 0:
            return asked, N - asked if asked + E == N - 1 else E
        return summary.common, 0


def test_a_grown_e_is_noticed() -> None:
    verdicts = {result.property: result for result in prove(WithoutClamp(), cells=(REQUIRED_CELL,))}
    assert verdicts["LOAD-EXACT"].verdict is Verdict.VIOLATED
    assert verdicts["HIT-LAST"].verdict is Verdict.VIOLATED
