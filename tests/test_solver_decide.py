"""Deciding obligations: two solvers, no verdict from a vacuous or unknown answer, a core without slack."""

from __future__ import annotations

import shutil
import subprocess

import pytest
import z3

from model.policies import POLICIES
from properties.verdict import REQUIRED_CELL, Verdict
from solver import decide
from solver.arithmetic import division_facts, exact, product, quotient, remainder
from solver.decide import Decider, Outcome
from solver.finding import Finding, combined, finding_of, resting_on
from solver.obligation import Assumption, Obligation
from solver.prove import prove

X, Y, S = z3.Ints("x y s")
POSITIVE = Assumption("x is positive", X > 0)
GREATER = Assumption("y is greater", Y > X)
SLACK = Assumption("y is below 100", Y < 100)


def obligation(*assumptions: Assumption, goal: z3.BoolRef) -> Obligation:
    return Obligation("test", assumptions, goal)


def test_what_follows_holds_by_both_solvers_with_a_minimal_core() -> None:
    decided = Decider().decide(obligation(SLACK, POSITIVE, GREATER, goal=Y > 1))
    assert decided.outcome is Outcome.HOLDS
    assert decided.core == ("x is positive", "y is greater")
    assert decided.solvers == ("z3", "cvc5")


def test_the_core_avoids_lemmas_where_it_can() -> None:
    lemma = Assumption("HIT-MEMBER", Y > 1)
    decided = Decider().decide(obligation(lemma, POSITIVE, GREATER, goal=Y > 1))
    assert decided.core == ("x is positive", "y is greater")


def test_what_does_not_follow_fails() -> None:
    decided = Decider().decide(obligation(POSITIVE, goal=Y > 1))
    assert decided.outcome is Outcome.FAILS
    assert finding_of(decided).verdict is Verdict.CTI


def test_contradictory_assumptions_are_vacuous() -> None:
    decided = Decider().decide(obligation(POSITIVE, Assumption("x is negative", X < 0), goal=Y > 1))
    assert decided.outcome is Outcome.VACUOUS
    assert finding_of(decided).verdict is Verdict.VACUOUS


def test_a_limit_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    hard = obligation(goal=z3.Implies(z3.And(X > 2, Y > 2, S > 2), X * X * X + Y * Y * Y != S * S * S))
    monkeypatch.setattr(decide, "Z3_RLIMIT", 2000)
    decided = Decider().decide(hard)
    assert decided.outcome is Outcome.UNKNOWN
    assert "limit" in decided.reason


def test_a_second_solver_that_disagrees_or_gives_up_prevents_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in ("sat", "unknown", ""):
        monkeypatch.setattr(decide, "_cvc5", lambda text, answer=answer: answer)
        decided = Decider().decide(obligation(POSITIVE, GREATER, goal=Y > 1))
        assert decided.outcome is Outcome.UNKNOWN
        assert decided.reason


def test_without_the_second_solver_the_verdict_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "cvc5", None)
    decided = Decider().decide(obligation(POSITIVE, GREATER, goal=Y > 1))
    assert (decided.outcome, decided.solvers) == (Outcome.HOLDS, ("z3",))


def test_the_exported_text_is_an_smt_lib_script_for_any_solver() -> None:
    exported: dict[str, str] = {}
    prove(POLICIES["vllm-0.23"], cells=(REQUIRED_CELL,), export=lambda title, text: exported.update({text: title}))
    assert len(exported) > 20
    for text in exported:
        assert text.startswith("(set-logic QF_UFNIA)\n")
        assert text.endswith("(check-sat)\n")
        solver = z3.Solver()
        solver.from_string(text)
        assert solver.check() in (z3.sat, z3.unsat)


@pytest.mark.skipif(shutil.which("cvc5") is None, reason="no cvc5 executable")
def test_the_exported_text_is_read_by_the_executable() -> None:
    text = obligation(POSITIVE, GREATER, goal=Y > 1).smtlib
    answer = subprocess.run(["cvc5", "--lang", "smt2"], input=text, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "unsat"


def test_the_facts_about_division_are_true() -> None:
    for number in range(-7, 8):
        for divisor in range(1, 5):
            facts = z3.substitute(exact(division_facts(X, S)), (X, z3.IntVal(number)), (S, z3.IntVal(divisor)))
            assert z3.is_true(z3.simplify(facts))


def test_products_and_quotients_mean_what_they_mean_on_ints() -> None:
    terms = {remainder(X, S): 7 % 3, quotient(X, S): 7 // 3, product(S, X): 21}
    for term, value in terms.items():
        known = z3.substitute(exact(term == value), (X, z3.IntVal(7)), (S, z3.IntVal(3)))
        assert z3.is_true(z3.simplify(known))


PROVED = Finding(Verdict.PROVED, core=("a",), solvers=("z3", "cvc5"), obligations=1)


@pytest.mark.parametrize("verdict", [Verdict.UNKNOWN, Verdict.VACUOUS, Verdict.CTI, Verdict.VIOLATED])
def test_nothing_that_rests_on_something_weak_is_proved(verdict: Verdict) -> None:
    basis = Finding(verdict, reason="weak")
    assert resting_on(PROVED, "a", basis).verdict is Verdict.UNKNOWN
    assert combined((PROVED, basis)).verdict is verdict


def test_what_rests_on_short_lists_holds_within_them() -> None:
    basis = Finding(Verdict.HOLDS_WITHIN, reason="write a fold", scope="5 children")
    found = resting_on(PROVED, "a", basis)
    assert (found.verdict, found.scope, found.reason) == (Verdict.HOLDS_WITHIN, "5 children", "write a fold")


def test_what_is_violated_stays_violated() -> None:
    broken = Finding(Verdict.VIOLATED, reason="broken")
    assert resting_on(broken, "a", Finding(Verdict.UNKNOWN)) == broken


def test_one_proof_by_one_solver_makes_the_whole_one_by_one_solver() -> None:
    alone = Finding(Verdict.PROVED, solvers=("z3",), obligations=1)
    assert combined((PROVED, alone)).solvers == ("z3",)
