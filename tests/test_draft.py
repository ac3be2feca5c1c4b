"""Draft models: which block a lookup drops, how far it looks, and where the states have to be for that."""

from __future__ import annotations

import attrs
import pytest

from model.actions import Action, Arrive, Drain, Evict, Step
from model.configuration import Configuration, Eviction, Group, GroupKind
from model.errors import ConfigurationError
from model.policies import POLICIES
from model.release import NEWEST, Release
from model.rules.lookup import DraftDrop, DraftGroups
from model.rules.states import DraftLookAhead
from model.system import Observation, apply, initial
from model.tokens import Segment
from properties.judge import violations
from solver.scope import Scope, ScopeError

FULL = Group(GroupKind.FULL_ATTENTION, 2, draft=True)
TARGET = Group(GroupKind.FULL_ATTENTION, 2)
WINDOW = Group(GroupKind.SLIDING_WINDOW, 2, window=3, draft=True)
NARROW = Group(GroupKind.SLIDING_WINDOW, 2, window=2, draft=True)
LONG_WINDOW = Group(GroupKind.SLIDING_WINDOW, 2, window=20, draft=True)
MAMBA = Group(GroupKind.MAMBA, 2)

WITHIN = Release(draft_drop=DraftDrop.WITHIN_THE_CAP)
EVERY_PASS = Release(draft_drop=DraftDrop.EVERY_PASS)
MAMBA_LOOKS_AHEAD = Release(draft_groups=DraftGroups.EVERY_GROUP, draft_look_ahead=DraftLookAhead.EVERY_KIND)


def resent(
    groups: tuple[Group, ...], tokens: int, *, release: Release = NEWEST, evicted: tuple[Evict, ...] = ()
) -> Observation:
    """The step that admits a request of `tokens` tokens, all of them those of an earlier, longer one that ran block by
    block."""
    actions: list[Action] = [
        Arrive("first", (Segment("shared", 12), Segment("tail", 2)), (Segment("out", 1),)),
        *[Step(budget=2)] * 7,
        Drain(),
        *evicted,
        Arrive("second", (Segment("shared", tokens),), (Segment("more", 1),)),
        Step(),
    ]
    system = initial(Configuration(groups, 60, budget=100, eviction=Eviction.ADVERSARIAL, release=release))
    for action in actions:
        system, observations = apply(system, POLICIES["vllm-0.28"], action)
    return observations[0]


def hit(observation: Observation) -> int:
    return observation.admissions[0].decision.local


@pytest.mark.parametrize(
    ("groups", "tokens", "newest", "within_the_cap"),
    [
        pytest.param((TARGET, MAMBA), 9, 8, 8, id="without a draft group nothing is dropped"),
        pytest.param((FULL, MAMBA), 9, 6, 6, id="the block [8, 10) of another continuation is not there to be dropped"),
        pytest.param((FULL, MAMBA), 10, 8, 6, id="[8, 10) is hashed, but ends past the cap of 9"),
        pytest.param((FULL, MAMBA), 2, 0, 0, id="nothing is left of one block"),
        pytest.param((FULL, WINDOW, MAMBA), 10, 8, 6, id="both drop from the same boundary, once"),
        pytest.param((TARGET, WINDOW, MAMBA), 10, 8, 6, id="the window alone drops"),
    ],
)
def test_what_a_resent_prefix_hits(groups: tuple[Group, ...], tokens: int, newest: int, within_the_cap: int) -> None:
    assert hit(resent(groups, tokens)) == newest
    assert hit(resent(groups, tokens, release=WITHIN)) == within_the_cap


def test_the_dropped_block_has_to_be_cached() -> None:
    """Of the full-attention block [8, 10) only the drop has need."""
    assert hit(resent((FULL, MAMBA), 10, evicted=(Evict(0, "first", 10),))) == 6


def test_another_group_may_lower_what_a_draft_group_proved_and_it_proves_itself_again() -> None:
    """The state at 8 is gone, so that the hit is 6, for which the window needs [4, 6) and, to drop it, [6, 8)."""
    groups = (TARGET, WINDOW, MAMBA)
    gone = Evict(2, "first", 8)
    assert hit(resent(groups, 10, evicted=(gone,))) == 6
    assert hit(resent(groups, 10, evicted=(gone, Evict(1, "first", 8)))) == 4


def test_a_spec_drops_as_a_whole() -> None:
    assert hit(resent((TARGET, FULL, MAMBA), 10, evicted=(Evict(0, "first", 10),))) == 6


def test_a_prefix_shorter_than_the_window_is_rounded_down_before_the_drop_too() -> None:
    """[0, 6) is cached, so a drop of [4, 6) would leave the aligned 4; vLLM rounds 6 to 4 first, drops [2, 4) and
    rounds to 0."""
    wide = Group(GroupKind.FULL_ATTENTION, 4)
    assert hit(resent((wide, LONG_WINDOW), 7)) == 0


def told(observation: Observation) -> set[str]:
    return {violation.property for violation in violations(observation)}


def test_the_drop_on_every_pass_collapses_the_hit() -> None:
    """vLLM #32802."""
    groups = (FULL, WINDOW, NARROW, MAMBA)
    assert hit(resent(groups, 12)) == 10
    collapsed = resent(groups, 12, release=EVERY_PASS)
    assert hit(collapsed) == 0
    assert "HIT-SHRINK" in told(collapsed)
    assert not told(resent(groups, 12))


def test_a_look_ahead_without_a_drop_grows_the_hit() -> None:
    """vLLM #43650, vllm-ascend #12038: full attention fixes 8, Mamba, asked with one block more, makes it 10."""
    grown = resent((FULL, MAMBA), 11, release=MAMBA_LOOKS_AHEAD)
    assert hit(grown) == 10
    assert {"HIT-SHRINK", "HIT-COVER"} <= told(grown)
    repaired = attrs.evolve(MAMBA_LOOKS_AHEAD, draft_look_ahead=DraftLookAhead.ATTENTION)
    assert hit(resent((FULL, MAMBA), 11, release=repaired)) == 8
    assert not told(resent((FULL, MAMBA), 11, release=repaired))


def test_a_draft_model_has_no_recurrent_layers() -> None:
    with pytest.raises(ConfigurationError, match="no recurrent layers"):
        attrs.evolve(MAMBA, draft=True)


def test_the_exhaustive_search_refuses_draft_models() -> None:
    arrival = Arrive("a", (Segment("t", 4),), (Segment("o", 1),))
    with pytest.raises(ScopeError, match="draft models"):
        Scope("drafts", Configuration((FULL, MAMBA), 20, budget=100), (arrival,))
