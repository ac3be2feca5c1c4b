"""The reconciling lookup: what the loop guarantees for an `accept` of one's own."""

from __future__ import annotations

import pytest

from model.configuration import ConfigurationClass
from model.policies.vllm import Vllm028
from model.policy import GroupView
from properties.verdict import Verdict
from solver.decide import Decider
from solver.lookup_proof import LookupFindings, examine_lookup

ONE, SECOND = ConfigurationClass.ONE_ATTENTION_SPEC, ConfigurationClass.SECOND_ATTENTION_SPEC


def examined(policy: Vllm028) -> LookupFindings:
    return examine_lookup(policy, Decider())


class SearchesOnlyBelow(Vllm028):
    """Uses the group's own hit where it is low enough, and searches again where it is not."""

    name = "searches only below"

    def accept(self, group: GroupView, candidate: int) -> int:
        return group.hit if group.hit <= candidate else group.find(candidate)


class SearchesTwice(Vllm028):
    name = "searches twice"

    def accept(self, group: GroupView, candidate: int) -> int:
        return group.find(min(group.find(candidate), candidate))


@pytest.mark.parametrize("policy", [Vllm028(), SearchesOnlyBelow(), SearchesTwice()], ids=lambda policy: policy.name)
def test_a_lookup_that_searches_is_proved_in_both_classes(policy: Vllm028) -> None:
    found = examined(policy)
    assert {found.shrink.verdict, found.member[ONE].verdict, found.member[SECOND].verdict} == {Verdict.PROVED}
    assert found.greatest.verdict is Verdict.PROVED
    assert found.shrink.solvers == found.member[ONE].solvers == ("z3", "cvc5")


class TrimsAttention(Vllm028):
    """Trims attention, as vLLM trims full attention, and searches recurrent groups again."""

    name = "trims attention"

    def accept(self, group: GroupView, candidate: int) -> int:
        return group.find(candidate) if group.recurrent else min(candidate, group.hit)


def test_trimming_attention_is_sound_only_without_a_sliding_window() -> None:
    found = examined(TrimsAttention())
    assert found.member[ONE].verdict is Verdict.PROVED
    assert found.member[SECOND].verdict is Verdict.VIOLATED
    assert found.member[SECOND].trace is not None


class Trims(Vllm028):
    name = "trims"

    def accept(self, group: GroupView, candidate: int) -> int:
        return min(candidate, group.hit)


class SkipsShallow(Vllm028):
    """Does not look at groups that are no deeper than the candidate."""

    name = "skips shallow"

    def accept(self, group: GroupView, candidate: int) -> int:
        return candidate if group.hit <= candidate else group.find(candidate)


@pytest.mark.parametrize("policy", [Trims(), SkipsShallow()], ids=lambda policy: policy.name)
def test_a_candidate_that_was_not_searched_for_is_violated(policy: Vllm028) -> None:
    found = examined(policy)
    assert found.shrink.verdict is Verdict.PROVED
    for configuration_class in ConfigurationClass:
        assert found.member[configuration_class].verdict is Verdict.VIOLATED
        assert found.member[configuration_class].trace is not None


class Raises(Vllm028):
    name = "raises the candidate"

    def accept(self, group: GroupView, candidate: int) -> int:
        return max(candidate, group.hit) if group.recurrent else group.find(candidate)


def test_a_candidate_that_is_raised_is_violated() -> None:
    found = examined(Raises())
    assert found.shrink.verdict is Verdict.VIOLATED
    assert found.shrink.trace is not None


class Lower(Vllm028):
    """Gives up a block for nothing: safe, and less than could be had."""

    name = "lower"

    def accept(self, group: GroupView, candidate: int) -> int:
        found = group.find(candidate)
        return group.find(found - 1) if found == candidate and group.recurrent and candidate > 4 else found


def test_a_lookup_that_gives_up_too_much_is_safe_but_does_not_reach() -> None:
    found = examined(Lower())
    assert found.shrink.verdict is Verdict.PROVED
    assert found.member[ONE].verdict is Verdict.PROVED
    assert found.greatest.verdict is Verdict.VIOLATED
    assert "is valid in every group" in found.greatest.reason


class NegativeCap(Vllm028):
    name = "negative cap"

    def cap(self, N: int) -> int:
        return N - 2


def test_a_cap_below_zero_is_no_number_of_tokens() -> None:
    assert examined(NegativeCap()).shrink.verdict is not Verdict.PROVED


class RaisesForLongOnes(Vllm028):
    name = "raises for long ones"

    def accept(self, group: GroupView, candidate: int) -> int:
        if candidate > 3:
            raise OverflowError("too long")
        return group.find(candidate)


def test_an_accept_that_raises_is_violated_with_that_cache() -> None:
    found = examined(RaisesForLongOnes())
    assert found.total.verdict is Verdict.VIOLATED
    assert found.total.trace is not None
    assert found.shrink.verdict is Verdict.UNKNOWN
