"""Internal checkpoints: a second state of a prefill's chunk. Blocks are 8 tokens, hash units 4; 25 tokens are three
blocks and one token. What is expected was seen on the scheduler of vLLM 0.33.0 where it is about that release.
"""

from __future__ import annotations

import attrs
import pytest

from model.actions import Action, Arrive, Drain, Step
from model.configuration import Configuration, Group, GroupKind, StateMode
from model.connector import Contract, Leaf
from model.errors import UnsupportedConfiguration
from model.policies import POLICIES
from model.release import NEWEST, Release
from model.rules.lookup import PromptTail
from model.rules.states import CheckpointStart, UnreservedCheckpoint
from model.step import schedule
from model.store_rules import StoreRules
from model.system import System, apply, initial
from model.tokens import Segment
from properties.judge import violations
from properties.twin import disagreement, execute, new_twin
from solver.scope import Scope, ScopeError

GROUPS = (Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.MAMBA, 8))
STORES = Configuration(GROUPS, 60, budget=100, checkpoint_alignment=1, hash_block=4)
KEEPING = Leaf("store", claims=False, contract=Contract.ENDPOINT, store=StoreRules())
FROM_BLOCKS = attrs.evolve(NEWEST, checkpoint_start=CheckpointStart.BLOCK_BOUNDARY)


@attrs.frozen
class Run:
    """What a run came to. The numeric twin agreed all along."""

    system: System
    violated: dict[str, str]
    hits: list[int]
    chunks: list[tuple[str, int, int]]

    def states(self) -> list[int]:
        """Boundaries for which a state is cached, in tokens."""
        cached = self.system.scheduler.pool.cached
        return sorted({len(label.prefix) for label in cached if label.group == 1})


def stored_states(ran: Run) -> list[int]:
    """Boundaries of the states that the store has, in tokens."""
    return sorted(len(label.prefix) for label in ran.system.scheduler.stores["store"].keys if label.group == 1)


def run(configuration: Configuration, *actions: Action) -> Run:
    system, twin = initial(configuration), new_twin(configuration)
    violated: dict[str, str] = {}
    hits: list[int] = []
    chunks: list[tuple[str, int, int]] = []
    for action in actions:
        system, observations = apply(system, POLICIES["vllm-0.28"], action)
        for observation in observations:
            violated |= {violation.property: violation.message for violation in violations(observation)}
            hits += [admission.decision.local for admission in observation.admissions]
            if observation.plan is not None and observation.execution is not None:
                chunks += [(chunk.request, chunk.computed, chunk.end) for chunk in observation.plan.chunks]
                twin, outputs = execute(configuration, twin, observation.plan)
                flagged = {read.request for read in observation.execution.bad_reads}
                assert disagreement(configuration, observation.plan, outputs, flagged) == ()
    return Run(system, violated, hits, chunks)


def arrive(name: str, *lengths: tuple[str, int]) -> Arrive:
    return Arrive(name, tuple(Segment(text, length) for text, length in lengths), (Segment(f"{name}-out", 1),))


@pytest.mark.parametrize("retention", [None, 0])
def test_a_prefill_need_not_stop_for_the_state_that_it_stores_itself(retention: int | None) -> None:
    actions = (arrive("a", ("x", 25)), Drain(), arrive("b", ("x", 25)), Drain())
    stored = run(attrs.evolve(STORES, retention=retention), *actions)
    assert stored.chunks[0] == ("a", 0, 25)
    assert (stored.hits, stored.violated) == ([0, 24], {})
    stopped = run(attrs.evolve(STORES, checkpoint_alignment=None, retention=retention), *actions)
    assert stopped.chunks[0] == ("a", 0, 24)
    assert stopped.hits == [0, 24]


def test_a_checkpoint_may_lie_inside_a_block_and_is_held_in_the_column_before_the_last() -> None:
    """Of 23 tokens the last hash boundary below the last token is 20, in the column of [16, 24); it lies before it."""
    ran = run(STORES, arrive("a", ("x", 23)), Step())
    assert ran.states() == [20]
    ran = run(STORES, arrive("a", ("x", 23)), Drain(), arrive("b", ("x", 21)), Drain())
    assert (ran.hits, ran.violated) == ([0, 20], {})


def test_an_alignment_that_the_boundary_does_not_have_stores_nothing() -> None:
    ran = run(attrs.evolve(STORES, checkpoint_alignment=7), arrive("a", ("x", 25)), Step())
    assert ran.chunks[0] == ("a", 0, 24)


def test_retention_drops_a_checkpoint_that_no_replay_needs() -> None:
    """Chunks of 16 store the state at 12 beside that at 16 where every chunk may; no later request can need it."""
    actions = (arrive("a", ("x", 30)), Step(budget=16))
    assert run(STORES, *actions).states() == [16]
    assert run(attrs.evolve(STORES, retention=0), *actions).states() == []


A_TAIL = (arrive("a", ("x", 5)), Drain())
"""Leaves the state at 4, inside a block."""
PAST_IT = (*A_TAIL, arrive("b", ("x", 5), ("y", 20)), Step(), Drain())
SHORTER = (arrive("c", ("x", 5), ("y", 4), ("z", 3)), Step())
JUNCTION = (arrive("d", ("x", 5), ("y", 7), ("w", 13)), Step(), Drain())
"""Shares 12 tokens of attention with `b`, and its state only up to 4: retention keeps a state for the junction."""


@pytest.mark.parametrize(("retention", "actions"), [(None, (*PAST_IT, *SHORTER)), (0, (*PAST_IT, *JUNCTION, *SHORTER))])
def test_a_chunk_from_inside_a_block_leaves_a_state_there_that_is_cached_for_the_end_of_the_block(
    retention: int | None, actions: tuple[Action, ...]
) -> None:
    """The scheduler of 0.33.0 does the same: it publishes the label of 8 tokens and admits `c` at 8."""
    before = run(attrs.evolve(STORES, retention=retention), *actions)
    assert before.hits[-1] == 8
    assert "it has to hold state@8; it holds state@4" in before.violated["STATE-LABEL"]
    assert "Mamba group 1 needs state@8" in before.violated["HIT-RESUME"]
    after = run(attrs.evolve(STORES, retention=retention, release=FROM_BLOCKS), *actions)
    assert "STATE-LABEL" not in after.violated
    assert "HIT-RESUME" not in after.violated


WHOLE_BLOCKS = attrs.evolve(STORES, groups=(Group(GroupKind.FULL_ATTENTION, 8), GROUPS[1]), hash_block=8)
WIDE_ATTENTION = attrs.evolve(WHOLE_BLOCKS, groups=(Group(GroupKind.FULL_ATTENTION, 16), GROUPS[1]))


@pytest.mark.parametrize(
    ("configuration", "tokens", "stored"),
    [
        (STORES, 25, [24]),
        (STORES, 23, [20]),
        (STORES, 31, [28]),
        (STORES, 32, [28, 32]),
        (WHOLE_BLOCKS, 23, [16]),
        (WHOLE_BLOCKS, 32, [24, 32]),
        (WIDE_ATTENTION, 23, [16]),
        (WIDE_ATTENTION, 32, [16, 32]),
    ],
)
def test_a_checkpoint_is_handed_over_from_its_column_for_its_own_boundary(
    configuration: Configuration, tokens: int, stored: list[int]
) -> None:
    """What `KVCacheManager.take_boundary_state_offloads` of 0.33.0 names."""
    ran = run(attrs.evolve(configuration, connector=KEEPING), arrive("a", ("x", tokens)), Step())
    assert (stored_states(ran), ran.violated) == (stored, {})


def test_a_checkpoint_in_a_column_that_is_not_cached_yet_is_not_handed_over() -> None:
    """Attention is cached for 16 of 25 tokens, so for two columns of states; the state at 16 lies in the third."""
    ran = run(attrs.evolve(WIDE_ATTENTION, connector=KEEPING), arrive("a", ("x", 25)), Step())
    assert (ran.states(), stored_states(ran)) == ([16], [])
    assert "store has the attention of 16 tokens and does not store the state" in ran.violated["REACH"]


def test_a_step_writes_the_state_of_a_checkpoint_and_not_what_its_block_was_cached_for_before() -> None:
    """At first the block that gets the state at 20 is cached for the 16 tokens of its column."""
    arrived = run(STORES, arrive("a", ("x", 23))).system
    step = schedule(arrived.scheduler, POLICIES["vllm-0.28"], 100).scheduler.in_flight[0]
    assert [len(label.prefix) for label in step.states] == [20]


def test_what_does_not_know_checkpoints_refuses_them() -> None:
    with pytest.raises(ScopeError, match="internal checkpoints"):
        Scope("stores", attrs.evolve(STORES, hash_block=4, groups=(GROUPS[0], Group(GroupKind.MAMBA, 4))), (A_TAIL[0],))
    for change in (
        {"state_mode": StateMode.ALL},
        {"release": Release(prompt_tail=PromptTail.WITHIN_PROMPT)},
    ):
        with pytest.raises(UnsupportedConfiguration, match="internal checkpoints"):
            attrs.evolve(STORES, **change)


def with_drafts(drafts: int, rule: UnreservedCheckpoint, retention: int | None = 0) -> Configuration:
    """Chunks of two blocks each."""
    groups = (Group(GroupKind.FULL_ATTENTION, 2), Group(GroupKind.MAMBA, 2))
    release = attrs.evolve(NEWEST, unreserved_checkpoint=rule)
    one = Configuration(groups, 40, budget=4, checkpoint_alignment=1, retention=retention, release=release)
    return attrs.evolve(one, drafts=drafts)


def test_a_scratch_block_in_the_column_of_a_checkpoint_stays_there() -> None:
    """As seen on 0.33.0: where a block is reserved for the checkpoint, the scratch block that lies there is it."""
    configuration = with_drafts(1, UnreservedCheckpoint.STORED_ALL_THE_SAME, retention=None)
    ran = run(configuration, arrive("a", ("x", 13)), Step(), Step())
    assert ran.violated == {}
    assert ran.system.scheduler.requests["a"].tables[1] == (0, 4, 5, 8, 9)
    assert ran.states() == [2, 4, 6, 8]


@pytest.mark.parametrize(
    ("drafts", "rule", "violated"),
    [
        (1, UnreservedCheckpoint.STORED_ALL_THE_SAME, {"OWN-EXCLUSIVE"}),
        (1, UnreservedCheckpoint.LEFT_OUT, set()),
        (0, UnreservedCheckpoint.STORED_ALL_THE_SAME, set()),
    ],
)
def test_a_checkpoint_without_a_block_of_its_own_goes_to_the_running_block(
    drafts: int, rule: UnreservedCheckpoint, violated: set[str]
) -> None:
    """docs/findings/checkpoint-in-the-running-block.md; the worker's table is that of vLLM 0.31 to 0.33."""
    ran = run(with_drafts(drafts, rule), arrive("a", ("x", 13)), Step(), Step())
    if drafts:
        assert ran.system.worker.mirrors["a"].tables[1] == (0, 3, 4, 4, 7)
    ran = run(with_drafts(drafts, rule), arrive("a", ("x", 13)), Drain())
    assert ran.violated.keys() == violated
