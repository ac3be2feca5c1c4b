"""REACH: a policy that is safe because it reports less is not as good as the baseline."""

from __future__ import annotations

from model.policies import POLICIES
from model.policies.reference import Reference
from model.policies.vllm import Vllm028
from model.policy import COMMON, Answer, Lookup, Summary
from properties.verdict import REQUIRED_CELL, Verdict
from solver.decide import Decider
from solver.decision import explore_admission
from solver.finding import Finding
from solver.prove import prove
from solver.reach import examine_greatest, examine_reach

BASELINE = POLICIES["vllm-0.28"]


def reach(policy: Vllm028) -> Finding:
    return examine_reach(policy, explore_admission(policy), BASELINE, Decider())


class NeverDiverges(Reference):
    """Safe, but gives up what a claiming connector could add to a deeper attention hit."""

    name = "never diverges"

    def lookup(self, claims: bool) -> Lookup:
        return COMMON


class NeverLoads(Reference):
    name = "never loads"

    def settle(self, L: int, diverged: bool, asked: int, E: int, summary: Summary, N: int) -> tuple[int, int]:
        return summary.common, 0


class LoadsNoMoreThanABlock(Reference):
    """Takes an answer only if it is short: as safe, and sometimes less."""

    name = "short answers only"

    def settle(self, L: int, diverged: bool, asked: int, E: int, summary: Summary, N: int) -> tuple[int, int]:
        if E > summary.scheduler_block:
            return summary.common, 0
        return super().settle(L, diverged, asked, E, summary, N)


class LowerCap(Reference):
    name = "lower cap"

    def cap(self, N: int) -> int:
        return max(N - 2, 0)


def test_the_repaired_policy_reaches_what_the_release_reaches() -> None:
    found = reach(Reference())
    assert found.verdict is Verdict.PROVED
    assert found.solvers == ("z3", "cvc5")


def test_a_release_reaches_what_it_reaches() -> None:
    assert reach(Vllm028()).verdict is Verdict.PROVED


def test_a_policy_that_never_reports_a_kind_of_hit_is_vacuous() -> None:
    for policy, missing in ((NeverDiverges(), "a divergent hit"), (NeverLoads(), "an external hit")):
        found = reach(policy)
        assert found.verdict is Verdict.VACUOUS
        assert missing in found.reason


def test_a_policy_that_reports_less_is_not_proved() -> None:
    for policy in (LoadsNoMoreThanABlock(), LowerCap()):
        assert reach(policy).verdict is Verdict.CTI


class RefusesSynchronous(Reference):
    """Safe under copy before load as well, but uses no synchronous answer at all there."""

    name = "no synchronous answers"

    def usable(self, answer: Answer, asked: int, summary: Summary, N: int) -> int:
        return answer.tokens if answer.asynchronous or summary.copied_before_load == 0 else 0


def greatest(policy: Vllm028) -> Verdict:
    return examine_greatest(policy, explore_admission(policy), Decider()).verdict


def test_no_safe_boundary_is_greater_than_what_the_repaired_policy_reports() -> None:
    assert greatest(Reference()) is Verdict.PROVED


def test_a_policy_that_reports_less_than_is_safe_is_noticed() -> None:
    for policy in (LoadsNoMoreThanABlock(), NeverLoads(), RefusesSynchronous()):
        assert greatest(policy) is Verdict.CTI


def test_such_a_policy_is_safe_all_the_same() -> None:
    results = prove(LoadsNoMoreThanABlock(), cells=(REQUIRED_CELL,))
    assert {result.verdict for result in results if result.required} == {Verdict.PROVED}


def test_without_a_baseline_reach_is_about_the_lookup_and_not_required() -> None:
    (found,) = (result for result in prove(Vllm028(), cells=(REQUIRED_CELL,)) if result.property == "REACH")
    assert found.verdict is Verdict.PROVED
    assert not found.required
