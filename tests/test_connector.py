"""Connectors: contracts, honesty, and how a tree claims, answers and hands out loads."""

import attrs
import pytest

from model.actions import Arrive, EndLoad, LeafAnswers, ScriptedAnswer, Step
from model.composition import answer_of, assignments, claim_of
from model.connector import Composite, Connector, Contract, Leaf, StateRestored, least_conduct, leaves_of, may_diverge
from model.policies import POLICIES
from model.policy import NOTHING, UNKNOWN, Answer
from model.ready_connectors import (
    ATTENTION_ONLY,
    BACKED_STORE,
    DISHONEST,
    MOONCAKE_STORE,
    MORIIO,
    NIXL,
    NIXL_PULL,
    OFFLOADING,
    STORE,
)
from model.tokens import Segment
from properties.replay import Replay
from tests.small_runs import hybrid, run

POLICY = POLICIES["vllm-0.28"]


def leaf(name: str, claims: bool = True) -> Leaf:
    return Leaf(name, claims, Contract.ENDPOINT if claims else Contract.BACKED)


def test_the_ready_made_leaves_are_honest_but_for_the_attention_only_store() -> None:
    honest = (BACKED_STORE, STORE, NIXL, MORIIO, OFFLOADING, MOONCAKE_STORE, NIXL_PULL)
    assert all(ready.honest for ready in honest)
    assert not ATTENTION_ONLY.honest


@pytest.mark.parametrize("clause", DISHONEST)
def test_each_dishonest_leaf_breaks_its_clause_and_no_other(clause: str) -> None:
    dishonest = DISHONEST[clause]
    least = least_conduct(dishonest.contract)
    repaired = {
        "claim": {"state": StateRestored.ALWAYS},
        "state": {"state": least.state},
        "attention": {"omitted_groups": ()},
        "range": {"within_range": True},
        "unassigned": {"writes_unassigned": False},
    }[clause]
    assert not dishonest.honest
    assert attrs.evolve(dishonest, conduct=attrs.evolve(dishonest.conduct, **repaired)).honest


def test_a_claim_promises_at_least_the_endpoint() -> None:
    assert not Leaf("boaster", claims=True, contract=Contract.BACKED).honest


@pytest.mark.parametrize(
    ("tree", "claims"),
    [
        (Composite(()), False),
        (Composite((leaf("a"), leaf("b"))), True),
        (Composite((leaf("a"), leaf("b", claims=False))), False),
        (Composite((leaf("a", claims=False), leaf("b"))), False),
        (Composite((leaf("a"), Composite(()))), False),
        (Composite((Composite((Composite((leaf("a"),)),)), leaf("b"))), True),
        (Composite((leaf("a"), Composite((leaf("b"), Composite((leaf("c", claims=False),)))))), False),
    ],
)
def test_a_composite_claims_if_it_has_children_and_all_claim_at_any_depth(tree: Connector, claims: bool) -> None:
    assert claim_of(POLICY, tree) is claims
    assert may_diverge(tree) is claims


def answers(said: dict[str, int | None]) -> tuple[list[str], Answer]:
    tree = Composite((leaf("a"), Composite((leaf("b"), leaf("c"))), leaf("d")))
    order = [each.name for each in leaves_of(tree)]
    asked: list[str] = []

    def ask(each: Leaf) -> Answer:
        asked.append(each.name)
        tokens = said.get(each.name, 0)
        if tokens is None:
            return UNKNOWN
        return Answer(unknown=False, tokens=tokens, asynchronous=False, source=order.index(each.name))

    return asked, answer_of(POLICY, tree, ask)


def test_the_first_child_with_tokens_is_chosen_though_all_are_asked() -> None:
    asked, answer = answers({"b": 4, "c": 8, "d": 16})
    assert (asked, answer.tokens, answer.source) == (["a", "b", "c", "d"], 4, 1)


def test_one_unknown_makes_the_whole_unknown_and_ends_the_asking() -> None:
    asked, answer = answers({"a": 4, "c": None, "d": 16})
    assert (asked, answer) == (["a", "b", "c"], UNKNOWN)


def test_nobody_answers_an_empty_composite() -> None:
    assert answer_of(POLICY, Composite(()), lambda _: pytest.fail("nobody is there")) == NOTHING


def test_only_the_leaf_behind_the_answer_is_told_to_load() -> None:
    tree = Composite((leaf("a"), Composite((leaf("b"), leaf("c"))), leaf("d")))
    told = {each.leaf.name: each.tokens for each in assignments(POLICY, tree, source=2, tokens=16)}
    assert told == {"a": 0, "b": 0, "c": 16, "d": 0}


def test_only_the_leaf_that_loads_reports() -> None:
    """Report 41: the second report comes when the request runs already."""
    winner = Leaf("winner", claims=False, contract=Contract.ENDPOINT)
    said = (LeafAnswers("winner", (ScriptedAnswer(4, asynchronous=True),)),)
    arrives = Arrive("r", (Segment("x", 6),), (Segment("o", 2),), said)

    def replayed(reports: bool) -> Replay:
        conduct = attrs.evolve(least_conduct(Contract.ENDPOINT), reports_unassigned=reports)
        loser = Leaf("loser", claims=False, contract=Contract.ENDPOINT, conduct=conduct)
        assert loser.honest is not reports
        return run(POLICY, hybrid(Composite((winner, loser))), arrives, Step(), EndLoad("r"), Step())

    assert replayed(False).violations == ()
    twice = replayed(True)
    assert [violation.property for violation in twice.violations] == ["LOAD-SOURCE"]
    assert "a second leaf reports that it has ended" in twice.observations[-1].after.assertion
