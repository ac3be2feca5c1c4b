"""Chunked local attention: a token sees its own chunk, so what lies before that chunk need not be cached.

Blocks are 4 tokens, chunks 8; the examples are those of `ChunkedLocalAttentionManager` (vllm/v1/core/).
"""

from __future__ import annotations

import attrs
import pytest

from model import worker
from model.actions import Arrive, Drain, Evict, Step
from model.configuration import Configuration, ConfigurationClass, Eviction, Group, GroupKind
from model.errors import ConfigurationError
from model.execution import Reason
from model.lookup import look_up
from model.plan import Chunk, StepPlan
from model.policies import POLICIES
from model.policy import COMMON
from model.pool import NULL_BLOCK
from model.release import Release
from model.rules.lookup import DraftGroups
from model.system import Observation, System, apply, initial
from model.tokens import Segment, tokens_of
from properties.judge import violations
from properties.twin import disagreement, execute, new_twin

FULL = Group(GroupKind.FULL_ATTENTION, 4)
LOCAL = Group(GroupKind.CHUNKED_LOCAL, 4, chunk=8)
CONFIGURATION = Configuration((FULL, LOCAL), 40, budget=100, eviction=Eviction.ADVERSARIAL)
TEXT = (Segment("x", 24),)


def filled(evicted: tuple[int, ...]) -> System:
    """After a request of 24 tokens; of the chunked local group the blocks that end at `evicted` are gone."""
    system = initial(CONFIGURATION)
    for action in (
        Arrive("fill", TEXT, (Segment("out", 1),)),
        Drain(),
        *(Evict(1, "fill", boundary) for boundary in evicted),
    ):
        system, _ = apply(system, POLICIES["vllm-0.28"], action)
    return system


@pytest.mark.parametrize(
    ("evicted", "found"),
    [
        pytest.param((), {7: 4, 8: 8, 9: 8, 11: 8, 12: 12, 15: 12, 16: 16, 23: 20, 24: 24}, id="all is cached"),
        pytest.param((4, 8), {7: 0, 8: 8, 12: 12, 15: 12}, id="the first chunk is gone"),
        pytest.param((12,), {11: 8, 12: 8, 15: 8, 16: 16, 20: 20}, id="the second chunk has lost its start"),
        pytest.param((4, 8, 12, 16, 20, 24), {7: 0, 8: 8, 15: 8, 16: 16, 23: 16, 24: 24}, id="nothing is cached"),
    ],
)
def test_what_a_bound_finds(evicted: tuple[int, ...], found: dict[int, int]) -> None:
    system = filled(evicted)
    lookup = look_up(
        POLICIES["vllm-0.28"], CONFIGURATION, system.scheduler.pool, tokens_of(TEXT), COMMON, len(tokens_of(TEXT)) - 1
    )
    local = lookup.views[1]
    assert {bound: local.find(bound) for bound in found} == found
    assert all(local.valid(boundary) for boundary in found.values())


def admitted(evicted: tuple[int, ...], tokens: int) -> Observation:
    system = filled(evicted)
    for action in (Arrive("r", (Segment("x", tokens), Segment("y", 3)), (Segment("more", 1),)), Step()):
        system, observations = apply(system, POLICIES["vllm-0.28"], action)
    return observations[0]


@pytest.mark.parametrize(
    ("evicted", "tokens", "hit", "nulls"),
    [((), 14, 12, 2), ((4, 8), 14, 12, 2), ((12,), 14, 8, 2), ((12,), 16, 16, 4), ((4, 8), 6, 0, 0)],
)
def test_a_hit_has_null_columns_before_its_chunk(evicted: tuple[int, ...], tokens: int, hit: int, nulls: int) -> None:
    observation = admitted(evicted, tokens)
    assert observation.plan is not None
    assert observation.admissions[0].decision.local == hit
    assert observation.plan.chunks[0].new_blocks[1][: hit // 4].count(NULL_BLOCK) == nulls
    assert violations(observation) == ()


def test_a_request_releases_what_lies_before_its_chunk() -> None:
    system = initial(CONFIGURATION)
    for action in (Arrive("r", TEXT, (Segment("out", 1),)), Step(budget=12), Step(budget=8)):
        system, _ = apply(system, POLICIES["vllm-0.28"], action)
    table = system.scheduler.requests["r"].tables[1]
    assert [column for column, block in enumerate(table) if block == NULL_BLOCK] == [0, 1]


def test_a_chunk_of_attention_that_was_not_written_is_a_bad_read() -> None:
    """A request starts at 14, in the chunk [8, 16): what it lacks of the chunk is read, what lies before not."""
    chunk = Chunk("r", tokens_of(TEXT)[:15], computed=14, count=1, starts=True, new_blocks=((1, 2, 3, 4), (0, 0, 0, 5)))
    _, execution = worker.execute(CONFIGURATION, worker.new_worker(CONFIGURATION), StepPlan((chunk,)))
    bad = [(read.column, read.reason) for read in execution.bad_reads if read.group == 1]
    assert bad == [(2, Reason.NULL_BLOCK), (3, Reason.UNWRITTEN)]


def test_the_numeric_twin_agrees() -> None:
    system, twin = initial(CONFIGURATION), new_twin(CONFIGURATION)
    actions = (
        Arrive("fill", TEXT, (Segment("out", 3),)),
        *[Step(budget=5)] * 7,
        Evict(1, "fill", 12),
        Arrive("r", (Segment("x", 14), Segment("y", 9)), (Segment("more", 2),)),
        *[Step(budget=3)] * 6,
    )
    for action in actions:
        system, observations = apply(system, POLICIES["vllm-0.28"], action)
        for observation in observations:
            if observation.plan is not None:
                twin, outputs = execute(CONFIGURATION, twin, observation.plan)
                assert disagreement(CONFIGURATION, observation.plan, outputs, set()) == ()


def test_configurations_that_vllm_refuses() -> None:
    with pytest.raises(ConfigurationError, match="needs a chunk"):
        Group(GroupKind.CHUNKED_LOCAL, 4)
    with pytest.raises(ConfigurationError, match="no multiple of the block"):
        Group(GroupKind.CHUNKED_LOCAL, 4, chunk=6)
    with pytest.raises(ConfigurationError, match="the hits' unit"):
        Configuration((Group(GroupKind.FULL_ATTENTION, 8), LOCAL), 40, budget=100)
    every = Release(draft_groups=DraftGroups.EVERY_GROUP)
    with pytest.raises(ConfigurationError, match="drops no block"):
        Configuration((attrs.evolve(FULL, draft=True), LOCAL), 40, budget=100, release=every)


def test_it_is_a_second_attention_spec() -> None:
    assert CONFIGURATION.configuration_class is ConfigurationClass.SECOND_ATTENTION_SPEC
