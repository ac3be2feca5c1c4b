"""Composites: claims, answers and loads, for any width and depth, or for short lists where no fold is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from model.policies.vllm import Vllm028
from model.policy import NOTHING, UNKNOWN, Answer, Child
from properties.verdict import REQUIRED_CELL, Verdict
from solver import answers, claims
from solver.claims import ACCUMULATORS, reachable
from solver.composition_proof import CompositionFindings, examine_composition
from solver.decide import Decider
from solver.prove import prove


def examined(policy: Vllm028) -> CompositionFindings:
    return examine_composition(policy, Decider())


def test_the_closure_of_a_claim_is_a_table() -> None:
    table = reachable(Vllm028())
    assert table is not None
    assert {(row.accumulator, row.any_child, row.all_claim) for row in table.rows} == {
        (0, False, True),
        (1, True, True),
        (2, True, False),
    }
    assert {number for number, claim in table.claims.items() if claim} == {1}


class Counted(Vllm028):
    """Counts children and claimers: a fold with a new accumulator for every child."""

    name = "counted"
    claim_start: Any = (0, 0)

    def claim_step(self, acc: Any, child: Child) -> Any:
        return acc[0] + 1, acc[1] + (1 if child.claims else 0)

    def claim_end(self, acc: Any) -> bool:
        return bool(acc[0] == acc[1] > 0)


class CountedUpToSix(Counted):
    """Claims wrongly, but only for composites wider than the lists that are checked."""

    name = "counted up to six"

    def claim_end(self, acc: Any) -> bool:
        return bool(acc[0] == acc[1] > 0) or acc[0] == 7


def test_a_claim_without_a_finite_table_is_checked_for_short_lists_only() -> None:
    assert reachable(Counted()) is None
    for policy in (Counted(), CountedUpToSix()):
        found = examined(policy).claim
        assert found.verdict is Verdict.HOLDS_WITHIN
        assert "5 children" in found.scope
        assert "fold" in found.reason


class Saturating(Counted):
    """Counts to a number that is still small enough for a table, and claims wrongly beyond the short lists."""

    name = "saturating"
    claim_start: Any = 0

    def claim_step(self, acc: Any, child: Child) -> Any:
        if acc == -1 or not (child.claims or acc >= 7):
            return -1
        return min(acc + 1, 9)

    def claim_end(self, acc: Any) -> bool:
        return bool(acc > 0)


def test_a_fault_beyond_the_short_lists_is_no_success() -> None:
    assert claims.wrong_claim(Saturating()) is None
    assert examined(Saturating()).claim.verdict is Verdict.CTI


class Listed(Vllm028):
    """Claims and chooses from whole lists, rightly."""

    name = "listed"

    def claims(self, children: Sequence[Child]) -> bool:
        return bool(children) and all(child.claims for child in children)

    def choose(self, answers: Sequence[Answer]) -> Answer:
        return next((answer for answer in answers if answer.tokens > 0), NOTHING)


class ListedAny(Listed):
    name = "listed any"

    def claims(self, children: Sequence[Child]) -> bool:
        return any(child.claims for child in children)


class ListedSum(Listed):
    name = "listed sum"

    def choose(self, answers: Sequence[Answer]) -> Answer:
        positive = [answer for answer in answers if answer.tokens > 0]
        return attrs.evolve(positive[0], tokens=sum(a.tokens for a in positive)) if positive else NOTHING


def test_a_list_shaped_policy_holds_within_short_lists_never_more() -> None:
    found = {result.property: result for result in prove(Listed(), cells=(REQUIRED_CELL,)) if result.required}
    for property in ("CAP-MEET", "LOAD-SOURCE", "POLICY-TOTAL"):
        assert found[property].verdict is Verdict.HOLDS_WITHIN
        assert "composites of at most 5 children" in found[property].scope
        assert "write" in found[property].reason
    assert {result.verdict for result in found.values()} == {Verdict.HOLDS_WITHIN, Verdict.PROVED}
    assert found["HIT-RESUME"].verdict is Verdict.HOLDS_WITHIN


def test_a_list_shaped_fault_is_violated_with_a_trace() -> None:
    claim, source = examined(ListedAny()).claim, examined(ListedSum()).source
    for found in (claim, source):
        assert found.verdict is Verdict.VIOLATED
        assert found.trace is not None


class Stingy(Vllm028):
    """Claims nothing at all: safe."""

    name = "stingy"

    def claim_end(self, acc: bool | None) -> bool:
        return False


class LastWinner(Vllm028):
    """The last child with an answer wins, consistently: safe."""

    name = "last winner"

    def choose_step(self, acc: Answer, child_answer: Answer) -> Answer:
        if acc.unknown or child_answer.unknown:
            return UNKNOWN
        return child_answer if child_answer.tokens > 0 else acc


class Greatest(Vllm028):
    """The greatest answer wins, consistently: safe."""

    name = "greatest"

    def choose_step(self, acc: Answer, child_answer: Answer) -> Answer:
        if acc.unknown or child_answer.unknown:
            return UNKNOWN
        return child_answer if child_answer.tokens > acc.tokens else acc


@pytest.mark.parametrize("policy", [Stingy(), LastWinner(), Greatest()], ids=lambda policy: policy.name)
def test_other_choices_that_are_consistent_are_proved(policy: Vllm028) -> None:
    found = examined(policy)
    assert {found.claim.verdict, found.source.verdict, found.again.verdict} == {Verdict.PROVED}


class Summed(Vllm028):
    name = "summed"

    def choose_step(self, acc: Answer, child_answer: Answer) -> Answer:
        if acc.unknown or child_answer.unknown:
            return UNKNOWN
        return attrs.evolve(acc if acc.tokens > 0 else child_answer, tokens=acc.tokens + child_answer.tokens)


class SmallestTokens(Vllm028):
    name = "smallest tokens"

    def choose_step(self, acc: Answer, child_answer: Answer) -> Answer:
        if acc.unknown or child_answer.unknown:
            return UNKNOWN
        if acc.tokens > 0 and child_answer.tokens > 0:
            return attrs.evolve(acc, tokens=min(acc.tokens, child_answer.tokens))
        return acc if acc.tokens > 0 else child_answer


class Synchronised(Vllm028):
    name = "synchronised"

    def choose_step(self, acc: Answer, child_answer: Answer) -> Answer:
        return attrs.evolve(super().choose_step(acc, child_answer), asynchronous=False)


class StartsWithTokens(Vllm028):
    name = "starts with tokens"
    choose_start = Answer(unknown=False, tokens=1, asynchronous=False, source=0)


@pytest.mark.parametrize("policy", [Summed(), SmallestTokens(), StartsWithTokens()], ids=lambda policy: policy.name)
def test_an_answer_that_no_leaf_gave_is_violated(policy: Vllm028) -> None:
    found = examined(policy).source
    assert found.verdict is Verdict.VIOLATED
    assert found.trace is not None


def test_an_answer_that_is_changed_is_at_least_not_proved() -> None:
    assert examined(Synchronised()).source.verdict in (Verdict.CTI, Verdict.VIOLATED)


class RaisesOnThree(Vllm028):
    name = "raises on three"
    claim_start: Any = 0

    def claim_step(self, acc: Any, child: Child) -> Any:
        if acc == 2:
            raise IndexError("too many children")
        return acc + 1

    def claim_end(self, acc: Any) -> bool:
        return False


class RaisesOnUnknown(Vllm028):
    name = "raises on unknown"

    def choose_step(self, acc: Answer, child_answer: Answer) -> Answer:
        if child_answer.unknown:
            raise ValueError("no answer")
        return acc if acc.tokens > 0 else child_answer


@pytest.mark.parametrize("policy", [RaisesOnThree(), RaisesOnUnknown()], ids=lambda policy: policy.name)
def test_a_fold_that_raises_is_violated_with_a_composite(policy: Vllm028) -> None:
    found = examined(policy).total
    assert found.verdict is Verdict.VIOLATED
    assert found.trace is not None


def test_the_short_lists_are_all_there_are() -> None:
    assert sum(1 for _ in claims.short_lists()) == sum(2**length for length in range(6))
    assert sum(1 for _ in answers.short_lists(3)) == sum(len(answers.ALPHABET) ** length for length in range(4))
    assert ACCUMULATORS == 64
