"""Full attention sharded over context-parallel ranks: wider blocks beside recurrent states that every rank has whole.

The hits were written down from the schedulers of vLLM 0.33.0 and 0.28.0.
"""

from __future__ import annotations

import attrs
import pytest

from model.actions import Arrive, Drain, Evict, LeafAnswers, ScriptedAnswer, Step
from model.configuration import Configuration, ConfigurationClass, Eviction, Group, GroupKind
from model.connector import Contract, Leaf
from model.errors import ConfigurationError
from model.policies import POLICIES
from model.release import NEWEST, RELEASES
from model.rules.lookup import PerGroupBlocks, ShardedHits
from model.rules.states import ChunkGrid
from model.system import apply, initial
from model.tokens import Segment
from model.trace import Trace
from properties.replay import replay
from solver.scope import Scope, ScopeError

SHARDED = Group(GroupKind.FULL_ATTENTION, 32, ranks=2)
WHOLE = Group(GroupKind.FULL_ATTENTION, 32)
REPLICATED = Group(GroupKind.FULL_ATTENTION, 16)
MAMBA = Group(GroupKind.MAMBA, 16)
WIDE_MAMBA = Group(GroupKind.MAMBA, 32)


def configuration(*groups: Group, **named: object) -> Configuration:
    return attrs.evolve(Configuration(groups, pool_blocks=40, budget=64), **named)  # type: ignore[arg-type]


def hit(of: Configuration) -> int:
    """The local hit of a request that shares 50 tokens with an earlier one, which ran 48 tokens and then the rest."""
    system = initial(of)
    shared, own = Segment("x", 52), Segment("first-out", 1)
    replay = (Segment("x", 50), Segment("y", 40))
    for action in (
        Arrive("first", (shared,), (own,)),
        Step(budget=48),
        Drain(),
        Arrive("replay", replay, (Segment("replay-out", 1),)),
        Step(),
    ):
        system, (*_, observation) = apply(system, POLICIES["vllm-0.28"], action)
    (admission,) = observation.admissions
    return admission.decision.local


@pytest.mark.parametrize(
    ("groups", "tokens"),
    [
        ((SHARDED, MAMBA), 48),
        ((SHARDED, REPLICATED, MAMBA), 48),
        ((SHARDED, WIDE_MAMBA), 32),
        ((REPLICATED, MAMBA), 48),
        ((WHOLE, MAMBA), 0),
    ],
)
def test_sharded_attention_is_hit_inside_its_blocks_where_a_state_is(groups: tuple[Group, ...], tokens: int) -> None:
    assert hit(configuration(*groups)) == tokens


def test_up_to_028_sharded_attention_is_hit_at_scheduler_blocks_only() -> None:
    rules = attrs.evolve(NEWEST, sharded_hits=ShardedHits.SCHEDULER_BLOCKS)
    assert hit(configuration(SHARDED, MAMBA, release=rules)) == 0
    assert not configuration(SHARDED, MAMBA, release=rules).fine_grained


def test_up_to_028_sharded_attention_on_its_own_is_looked_up_by_blocks_of_one_rank() -> None:
    claims = Leaf("claims", claims=True, contract=Contract.ENDPOINT)
    sharded = configuration(SHARDED, WIDE_MAMBA, connector=claims, eviction=Eviction.ADVERSARIAL)
    actions = (
        Arrive("first", (Segment("x", 70),), (Segment("first-out", 1),)),
        Drain(),
        Evict(1, "first", 64),
        Arrive("replay", (Segment("x", 70),), (Segment("o", 1),), (LeafAnswers("claims", (ScriptedAnswer(1),)),)),
        Step(),
    )
    for rule, asked, violated in (
        (PerGroupBlocks.OF_ALL_RANKS, 64, []),
        (PerGroupBlocks.OF_ONE_RANK, 0, ["GEO-BLOCK"]),
    ):
        rules = attrs.evolve(RELEASES["0.28"], per_group_blocks=rule)
        seen = replay(Trace("", attrs.evolve(sharded, release=rules), actions), POLICIES["vllm-0.28"])
        assert seen.observations[-1].admissions[0].decision.asked == asked
        assert [violation.property for violation in seen.violations] == violated


def test_only_sharded_groups_are_scaled() -> None:
    sharded = configuration(SHARDED, REPLICATED, MAMBA)
    assert (sharded.scheduler_block, sharded.hit_alignment) == (32, 16)
    assert sharded.configuration_class is ConfigurationClass.SECOND_ATTENTION_SPEC_PARTIAL_TAILS
    rules = attrs.evolve(NEWEST, chunk_grid=ChunkGrid.SMALLEST_BLOCK)
    narrow = configuration(Group(GroupKind.FULL_ATTENTION, 16, ranks=2), MAMBA, release=rules)
    assert narrow.chunk_grid == 8


def test_equal_blocks_on_other_ranks_are_another_spec() -> None:
    assert configuration(SHARDED, WHOLE, MAMBA).specs == ((0,), (1,), (2,))


@pytest.mark.parametrize(
    ("kind", "of", "told"),
    [
        (GroupKind.FULL_ATTENTION, {"block": 16, "ranks": 3}, "multiple"),
        (GroupKind.FULL_ATTENTION, {"block": 16, "ranks": 0}, "multiple"),
        (GroupKind.MAMBA, {"block": 16, "ranks": 2}, "full attention only"),
        (GroupKind.SLIDING_WINDOW, {"block": 16, "ranks": 2, "window": 4}, "full attention only"),
    ],
)
def test_what_cannot_be_sharded_is_refused(kind: GroupKind, of: dict[str, int], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        Group(kind, **of)


def test_one_number_of_ranks() -> None:
    with pytest.raises(ConfigurationError, match="one number"):
        configuration(SHARDED, Group(GroupKind.FULL_ATTENTION, 48, ranks=3), MAMBA)


def test_a_search_refuses_sharded_groups() -> None:
    arrival = Arrive("r", (Segment("x", 8),), (Segment("o", 1),))
    with pytest.raises(ScopeError, match="context parallelism"):
        Scope("sharded", configuration(SHARDED, WIDE_MAMBA), (arrival,))
