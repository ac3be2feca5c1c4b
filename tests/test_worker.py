"""The worker on the shadow memory: hand-written plans, and what must be in the blocks and be reported afterwards."""

from __future__ import annotations

import pytest

from model.configuration import Configuration, WorkerOrder
from model.connector import Conduct, StateRestored
from model.execution import BadRead, Reason
from model.loading import write_loads, writes_of
from model.memory import (
    FOREIGN,
    TAINTED,
    UNWRITTEN,
    AttentionKV,
    Content,
    Memory,
    RecurrentState,
    empty_memory,
)
from model.plan import Chunk, Load, StepPlan
from model.tokens import Prefix
from tests.worker_plans import HYBRID, PRODUCER, SCENARIOS, goes_on, load, run, starts, store, x

Y = ("y0", "y1", "y2", "y3")


def kv(start: int, prefix: Prefix, group: int = 0) -> AttentionKV:
    return AttentionKV(group, start, prefix)


def state(tokens: int) -> RecurrentState:
    return RecurrentState(1, x(tokens))


def reads(name: str) -> list[BadRead]:
    """All bad reads of a scenario."""
    _, executions = run(*SCENARIOS[name])
    return [read for execution in executions for read in execution.bad_reads]


def told(read: BadRead) -> tuple[str, int, int, int, Reason]:
    return read.request, read.group, read.column, read.block, read.reason


@pytest.mark.parametrize(
    ("found", "written", "left"),
    [
        (UNWRITTEN, kv(0, x(2)), kv(0, x(2))),
        (kv(0, x(2)), kv(2, x(3)), kv(0, x(3))),  # goes on where the block ends
        (kv(0, x(3)), kv(1, x(2)), kv(0, x(3))),  # is there already, and more
        (kv(2, x(4)), kv(0, x(2)), kv(0, x(4))),  # fills the slots before
        (kv(0, x(1)), kv(2, x(3)), kv(2, x(3))),  # a gap between
        (kv(3, x(4)), kv(0, x(2)), kv(0, x(2))),
        (kv(0, (*x(2), "y2", "y3")), kv(2, x(3)), kv(0, x(3))),  # the prefixes part where the write begins
        (kv(0, Y[:2]), kv(2, x(3)), kv(2, x(3))),  # another prefix below
        (kv(0, x(2), group=1), kv(2, x(3)), kv(2, x(3))),  # another group's
        (state(2), kv(0, x(2)), kv(0, x(2))),
        (kv(0, x(2)), state(2), state(2)),
        (state(2), TAINTED, TAINTED),
    ],
)
def test_a_write_joins_the_kv_of_its_prefix_and_replaces_the_rest(
    found: Content, written: Content, left: Content
) -> None:
    memory = Memory((UNWRITTEN, found)).write(1, written)
    assert memory.read(1) == left


def test_a_wrong_write_leaves_the_slots_below_it() -> None:
    memory = Memory((UNWRITTEN, kv(0, x(4)), state(4)))
    assert memory.taint(1, group=0, start=2).read(1) == kv(0, x(2))
    assert memory.taint(1, group=0, start=0).read(1) == TAINTED
    assert memory.taint(2, group=0, start=2).read(2) == TAINTED


def test_the_null_block_never_holds_anything() -> None:
    memory = empty_memory(2)
    assert memory.write(0, state(2)) == memory.taint(0, group=0, start=0) == memory


@pytest.mark.parametrize(
    ("needed", "holds"),
    [
        (kv(1, x(3)), True),
        (kv(0, x(4)), True),
        (kv(0, x(5)), False),
        (kv(0, (*x(3), "y")), False),
        (kv(0, x(2), group=1), False),
        (state(4), False),
    ],
)
def test_a_reader_finds_what_it_needs_among_more(needed: AttentionKV, holds: bool) -> None:
    assert Memory((UNWRITTEN, kv(0, x(4)))).holds(1, needed) is holds


def test_a_state_is_found_only_as_it_is() -> None:
    memory = Memory((UNWRITTEN, state(4)))
    assert memory.holds(1, state(4))
    assert not memory.holds(1, state(2))
    assert not memory.holds(1, RecurrentState(2, x(4)))


def test_a_request_leaves_its_kv_and_a_state_where_each_chunk_ended() -> None:
    worker, executions = run(HYBRID, PRODUCER)
    # Attention fills a block per two tokens. state@2 stays in block 2 after it was copied to block 4 and taken on to 4.
    assert worker.memory.blocks[:5] == (UNWRITTEN, kv(0, x(2)), state(2), kv(2, x(4)), state(4))
    assert [outcome.copied for execution in executions for outcome in execution.chunks] == [(), (1,)]
    assert all(outcome.sound for execution in executions for outcome in execution.chunks)


def test_a_chunk_that_ends_in_the_same_column_goes_on_in_place() -> None:
    plans = (
        StepPlan(chunks=(starts("a", 0, 3, (1, 2), (0, 3)),), taken=(1, 2, 3)),
        StepPlan(chunks=(goes_on("a", 3, 1, (), ()),)),
    )
    worker, executions = run(HYBRID, plans)
    # Tokens [0, 3) end in column 1, and so do [3, 4): no state@2 is ever written.
    assert worker.memory.blocks[1:4] == (kv(0, x(2)), kv(2, x(4)), state(4))
    assert executions[1].chunks[0].copied == ()
    assert executions[1].chunks[0].sound


@pytest.mark.parametrize(
    "name", ["producer", "consumer", "aligned load", "unaligned load", "unaligned load after copy"]
)
def test_nothing_is_reported_of_a_run_that_finds_what_it_needs(name: str) -> None:
    assert reads(name) == []


def test_a_null_column_where_the_state_should_be_is_a_bad_read() -> None:
    (read,) = reads("no state")
    # R = 4, so column ceil(4 / 2) - 1 = 1 is read; the table has the null block there.
    assert told(read) == ("c", 1, 1, 0, Reason.NULL_BLOCK)
    assert (read.needed, read.computed, read.starts) == (state(4), 4, True)


def test_a_state_of_another_boundary_is_a_bad_read_and_spoils_what_follows() -> None:
    (first, *later) = reads("wrong for good")
    assert told(first) == ("c", 1, 1, 2, Reason.WRONG_CONTENT)
    assert (first.needed, first.found) == (state(4), state(2))
    # Whatever c computes from here on is wrong: each chunk starts from a wrong state and from wrong KV of token 4.
    assert [(read.computed, read.group) for read in later] == [(5, 1), (5, 0), (6, 1), (6, 0)]
    worker, _ = run(*SCENARIOS["wrong for good"])
    assert not worker.mirrors["c"].sound
    assert worker.memory.read(6) == TAINTED


def test_content_of_another_prefix_is_a_bad_read() -> None:
    # c shares three tokens with p: block 1 is right, block 3 holds x2 x3 instead of x2 y, block 4 state@4 of x.
    assert [told(read) for read in reads("other prefix")] == [
        ("c", 1, 1, 4, Reason.WRONG_CONTENT),
        ("c", 0, 1, 3, Reason.WRONG_CONTENT),
    ]


@pytest.mark.parametrize("name", ["aligned load after copy", "unaligned load left after copy"])
def test_a_copy_that_precedes_the_load_reads_an_unwritten_block(name: str) -> None:
    (read,) = reads(name)
    # The copy leaves column 1 (block 5) before the load has filled it.
    assert told(read) == ("a", 1, 1, 5, Reason.BEFORE_LOAD)
    assert read.found == UNWRITTEN


def test_with_the_load_first_an_unaligned_state_may_leave_its_column() -> None:
    assert reads("unaligned load left") == []


def test_a_load_is_its_conduct_and_fails_as_a_whole() -> None:
    bad = reads("failed load")
    assert [(read.group, read.column) for read in bad] == [(1, 1), (0, 0), (0, 1)]
    assert {read.reason for read in bad} == {Reason.UNWRITTEN}
    _, executions = run(*SCENARIOS["failed load"])
    assert executions[0].chunks[0].load_failed


def test_a_leaf_that_writes_uninvited_spoils_what_another_loaded() -> None:
    assert [(read.group, read.found) for read in reads("meddler")] == [(1, FOREIGN), (0, FOREIGN), (0, FOREIGN)]


def test_an_asynchronous_load_writes_when_it_ends() -> None:
    assert reads("asynchronous load") == []
    for name in ("asynchronous load not ended", "asynchronous load failed"):
        assert [(read.group, read.column, read.reason) for read in reads(name)] == [
            (1, 1, Reason.UNWRITTEN),
            (0, 0, Reason.UNWRITTEN),
            (0, 1, Reason.UNWRITTEN),
        ]


def loaded(each: Load, configuration: Configuration = HYBRID) -> dict[int, Content]:
    """Block -> content after `each` was written into an empty memory."""
    memory = write_loads(configuration, empty_memory(configuration.pool_blocks), (each,), {})
    return {block: held for block, held in enumerate(memory.blocks) if held != UNWRITTEN}


def test_a_load_restores_attention_of_its_interval_and_the_state_at_its_end() -> None:
    # [2, 5): attention columns 1 and 2, state@5 in column 2. The recurrent column of 4 is null and stays out.
    assert loaded(load(2, 5, (1, 2, 3), (0, 0, 4))) == {2: kv(2, x(4)), 3: kv(4, x(5)), 4: state(5)}
    assert writes_of(HYBRID, load(0, 2, (0,), (0,)), {}) == ()


@pytest.mark.parametrize(
    ("restores", "backed", "there"),
    [
        (StateRestored.ALWAYS, False, True),
        (StateRestored.IF_BACKED, True, True),
        (StateRestored.IF_BACKED, False, False),
        (StateRestored.NEVER, True, False),
    ],
)
def test_the_state_comes_as_the_conduct_says(restores: StateRestored, backed: bool, there: bool) -> None:
    held = loaded(load(0, 2, (1,), (2,), leaf=store(Conduct(restores)), backed=backed))
    assert (held.get(2) == state(2)) is there
    assert held[1] == kv(0, x(2))


def test_lagging_attention_comes_only_from_a_leaf_that_restores_it() -> None:
    # L = 4 is shown, but the attention list reaches 2 only.
    lagging = {"local": (2, 4), "backed": True}
    least, full = Conduct(StateRestored.ALWAYS), Conduct(StateRestored.ALWAYS, lagging_attention=True)
    tables = ((1, 2, 3), (0, 0, 4))
    assert loaded(load(4, 6, *tables, leaf=store(least), **lagging)) == {3: kv(4, x(6)), 4: state(6)}  # type: ignore[arg-type]
    assert loaded(load(4, 6, *tables, leaf=store(full), **lagging)) == {  # type: ignore[arg-type]
        2: kv(2, x(4)),
        3: kv(4, x(6)),
        4: state(6),
    }


def test_omitted_groups_and_unassigned_leaves_get_nothing() -> None:
    omits = Conduct(StateRestored.ALWAYS, omitted_groups=(0,))
    assert loaded(load(0, 2, (1,), (2,), leaf=store(omits))) == {2: state(2)}
    assert loaded(load(0, 2, (1,), (2,), assigned=False)) == {}
    meddles = Conduct(StateRestored.ALWAYS, writes_unassigned=True)
    assert loaded(load(0, 2, (1,), (2,), leaf=store(meddles), assigned=False)) == {1: FOREIGN, 2: FOREIGN}


def test_attention_written_in_a_step_may_be_read_in_it_but_a_state_may_not() -> None:
    assert reads("shared in step") == []
    (read,) = reads("state shared in step")
    assert told(read) == ("b", 1, 0, 2, Reason.UNWRITTEN)


def test_what_a_misled_request_writes_misleads_all_that_read_it_in_the_step() -> None:
    assert [told(read) for read in reads("wrong through sharing")] == [
        ("a", 0, 0, 1, Reason.UNWRITTEN),
        ("b", 0, 1, 2, Reason.WRONG_CONTENT),
        ("c", 0, 2, 4, Reason.WRONG_CONTENT),
    ]


def test_a_window_needs_the_tokens_that_its_first_token_sees() -> None:
    # Token 4 with a window of 3 sees [2, 4]: column 0 may be null. With a window of 4 it sees token 1 as well.
    assert reads("window edge") == []
    (read,) = reads("window too wide")
    assert told(read) == ("c", 1, 0, 0, Reason.NULL_BLOCK)
    assert read.needed == AttentionKV(1, 1, x(2))


def test_writes_to_null_columns_are_lost_and_reported() -> None:
    _, (execution,) = run(*SCENARIOS["null destination"])
    assert [(write.group, write.column) for write in execution.lost_writes] == [(0, 1), (1, 1)]
    # Token 2 does not even see its own KV.
    assert [(read.needed, read.reason) for read in execution.bad_reads] == [(kv(2, x(3)), Reason.NULL_BLOCK)]


def test_a_block_that_changes_hands_is_wiped() -> None:
    (read,) = reads("block taken from under a request")
    assert told(read) == ("p", 0, 0, 1, Reason.UNWRITTEN)
    assert not read.starts


def test_all_states_are_read_before_any_copy_is_written() -> None:
    # In one step p's state moves from block 4 to 6 and c's from 6 to 7: c finds in block 6 what was there before.
    plans = (
        *PRODUCER,
        StepPlan(chunks=(starts("c", 0, 4, (8, 9), (0, 6), prefix=Y),), taken=(6, 8, 9)),
        StepPlan(chunks=(goes_on("p", 4, 1, (5,), (6,)), Chunk("c", (*Y, "y4"), 4, 1, False, ((10,), (7,))))),
    )
    worker, executions = run(HYBRID, plans)
    assert executions[-1].bad_reads == ()
    assert worker.memory.read(6) == state(5)
    assert worker.memory.read(7) == RecurrentState(1, (*Y, "y4"))


def test_a_state_cannot_be_rewound() -> None:
    # p has run to 4 and is told to go on from 2: its state is in the running column, and it is state@4.
    (read,) = reads("rewound")
    assert told(read) == ("p", 1, 1, 4, Reason.WRONG_CONTENT)
    assert (read.needed, read.found) == (state(2), state(4))


def test_a_column_that_the_table_does_not_have_reads_as_null() -> None:
    _, executions = run(*SCENARIOS["short table"])
    assert [told(read) for read in executions[-1].bad_reads] == [("c", 1, 1, 0, Reason.NULL_BLOCK)]
    assert [(write.group, write.column) for write in executions[-1].lost_writes] == [(1, 2)]


def test_attention_that_is_written_over_a_state_destroys_it() -> None:
    # c was given p's running block 4 as its attention block; it writes one slot of it.
    assert [told(read) for read in reads("state written over") if read.request == "p"] == [
        ("p", 1, 1, 4, Reason.WRONG_CONTENT)
    ]


def test_a_dropped_request_starts_anew() -> None:
    again = StepPlan(chunks=(starts("p", 2, 1, (1, 5), (2, 6)),), dropped=("p",), taken=(5, 6))
    worker, executions = run(HYBRID, (*PRODUCER, again))
    # It starts from column 0 (state@2), not from the running column of its former life.
    assert executions[-1].bad_reads == ()
    assert worker.mirrors["p"].tables == ((1, 5), (2, 6))
    gone, _ = run(HYBRID, (*PRODUCER, StepPlan(dropped=("p",))))
    assert gone.mirrors == {}


@pytest.mark.parametrize("order", WorkerOrder)
def test_a_step_without_loads_is_the_same_in_both_orders(order: WorkerOrder) -> None:
    configuration = Configuration(HYBRID.groups, pool_blocks=12, budget=16, worker_order=order)
    assert run(configuration, PRODUCER) == run(HYBRID, PRODUCER)


def test_a_copied_tail_is_read_and_the_original_stays() -> None:
    assert reads("copied tails") == []
    worker, _ = run(*SCENARIOS["copied tails"])
    assert worker.memory.read(5) == kv(2, x(4))
    assert worker.memory.read(4) == state(4)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (
            "copy of what is written in the step",
            [("c", 1, 1, 6, Reason.UNWRITTEN), ("c", 0, 1, 5, Reason.UNWRITTEN)],
        ),
        ("copy of a copy", [("c", 0, 1, 7, Reason.UNWRITTEN)]),
    ],
)
def test_every_source_is_read_before_anything_of_the_step_is_written(name: str, found: list[object]) -> None:
    assert [told(read) for read in reads(name)] == found
