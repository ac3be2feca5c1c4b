"""Leaves that transfer a request's own blocks from a peer: what comes, where it lands, and that it comes only once."""

from __future__ import annotations

import attrs
import pytest

from model.actions import Action, Arrive, Drain, EndLoad, Evict, LeafAnswers, Preempt, ScriptedAnswer, Step
from model.configuration import Configuration, Group, GroupKind
from model.connector import Contract, Leaf
from model.errors import ConfigurationError, IllegalAction
from model.peer import AskedAgain, Counting, PeerRules, Placement
from model.policies import POLICIES
from model.store_rules import StoreRules
from model.tokens import Segment
from properties.features import Feature
from properties.fuzz import PROFILES, fuzz
from properties.replay import Replay
from properties.requirements import is_required
from properties.verdict import Verdict
from solver.scope import Scope, ScopeError
from tests.small_runs import ATTENTION, V028, hybrid, run


def peer(*, claims: bool = True, **rules: object) -> Leaf:
    return Leaf("peer", claims, Contract.FULL, peer=PeerRules(**rules))  # type: ignore[arg-type]


def arrive(tokens: int, held: int, request: str = "r") -> Arrive:
    said = (LeafAnswers("peer", (ScriptedAnswer(held),)),)
    return Arrive(request, (Segment("x", tokens),), (Segment(f"{request}-out", 3),), said)


def judged(leaf: Leaf, *actions: Action, configuration: Configuration | None = None) -> Replay:
    return run(V028, attrs.evolve(configuration or hybrid(), connector=leaf), *actions)


@pytest.mark.parametrize("claims", [True, False])
@pytest.mark.parametrize("asynchronous", [True, False])
def test_everything_but_the_last_token_comes_from_the_peer(claims: bool, asynchronous: bool) -> None:
    ending = (EndLoad("r"), Drain()) if asynchronous else (Drain(),)
    replayed = judged(peer(claims=claims, asynchronous=asynchronous), arrive(8, 8), Step(), *ending)
    assert replayed.violations == ()
    assert (replayed.admissions[0].local, replayed.admissions[0].external) == (0, 7)


def test_a_peer_sends_also_what_a_lagging_attention_group_lacks() -> None:
    two = hybrid(None, ATTENTION, Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.MAMBA, 2))
    filled = (Arrive("fill", (Segment("x", 8),), (Segment("o", 1),)), Drain(), Evict(1, "fill", 8), Evict(2, "fill", 8))
    replayed = judged(peer(), *filled, arrive(12, 12), Step(), EndLoad("r"), Drain(), configuration=two)
    assert replayed.violations == ()
    assert replayed.admissions[-1].external > 0


def test_its_state_is_that_of_the_boundary_that_it_holds() -> None:
    """Anything that trims what a peer answered resumes from a boundary at which there is no state."""

    class Trims(type(V028)):  # type: ignore[misc]
        name = "trims"

        def settle(self, *args: object) -> tuple[int, int]:
            local, external = super().settle(*args)
            return local, external - external % 2

    trimmed = run(Trims(), attrs.evolve(hybrid(), connector=peer(asynchronous=False)), arrive(8, 8), Step())
    assert {"LOAD-EXACT", "HIT-RESUME"} <= {violation.property for violation in trimmed.violations}


def test_what_was_transferred_is_not_answered_again() -> None:
    """Report 44."""
    again = (arrive(6, 6), Step(), EndLoad("r"), Step(), Preempt(), Evict(0, "r", 4), Evict(0, "r", 2), Step())
    replayed = judged(peer(), *again)
    assert replayed.violations == ()
    waits = judged(peer(asked_again=AskedAgain.THE_SAME), *again)
    assert [violation.property for violation in waits.violations] == ["PROGRESS"]
    assert "r waits for a load that never starts" in waits.violations[0].message
    with pytest.raises(IllegalAction, match="never ends"):
        judged(peer(asked_again=AskedAgain.THE_SAME), *again, EndLoad("r"))


def test_columns_are_copied_to_where_their_tokens_are() -> None:
    """Report 39: the prompt has a token more than the peer has seen, and all but the last block are local."""
    attention = hybrid(None, ATTENTION)
    filled = (Arrive("fill", (Segment("x", 6),), (Segment("o", 1),)), Drain())
    actions = (*filled, arrive(9, 8), Step(), EndLoad("r"), Drain())
    by_position = judged(peer(counting=Counting.PROMPT), *actions, configuration=attention)
    assert by_position.violations == ()
    by_count = judged(peer(counting=Counting.PROMPT, placement=Placement.BY_COUNT), *actions, configuration=attention)
    assert {"HIT-COVER", "STATE-LABEL"} <= {violation.property for violation in by_count.violations}


def test_a_peer_is_honest_by_its_rules() -> None:
    assert peer().honest
    assert peer(asynchronous=False).honest
    assert not peer(asked_again=AskedAgain.THE_SAME).honest
    with pytest.raises(ConfigurationError, match="make two leaves"):
        Leaf("both", True, Contract.FULL, store=StoreRules(), peer=PeerRules())


def test_a_search_refuses_peers() -> None:
    with pytest.raises(ScopeError, match="transfers from a peer"):
        Scope("peers", hybrid(peer()), (arrive(2, 2),))


@pytest.mark.slow
def test_sound_peers_keep_the_contract_under_every_policy_that_is_safe() -> None:
    for name in ("vllm-0.28", "reference"):
        results = fuzz(POLICIES[name], attrs.evolve(PROFILES["quick"], runs=40), features=frozenset({Feature.PEERS}))
        violated = {result.property for result in results if result.verdict is Verdict.VIOLATED}
        assert not [property for property in violated if is_required(property)]
