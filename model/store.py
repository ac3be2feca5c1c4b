"""What a store has, as its scheduler side sees it: the keys of its objects, what it answers, what it loads and saves.

Mirrors `MooncakeStoreCoordinator.find_longest_cache_hit` and `MooncakeStoreScheduler` (vllm/distributed/kv_transfer/
kv_connector/v1/mooncake/store) and `OffloadingConnectorScheduler` (offloading/scheduler.py). What the objects hold is
the worker's business (`model/worker.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs

from model.configuration import Configuration, Group
from model.connector import Leaf
from model.geometry import columns_for, floor_to
from model.plan import Chunk, Fetch, Load, Save, StepPlan, Table
from model.pool import NULL_BLOCK, EngineAssertion, Label, Pool
from model.request import Request
from model.store_rules import (
    Guard,
    HeldBlocks,
    LastToken,
    LoadStart,
    Match,
    NullBlocks,
    OutputStates,
    StateSource,
    StoreRules,
)
from model.tokens import Prefix


@attrs.frozen
class Store:
    """`keys` are those of all objects: which group's KV or state they are, of which prefix. `pending` are saves that
    are announced and not done. `tables` are the requests' tables as a store sees them that only ever appends, if it
    looks at them."""

    keys: frozenset[Label] = frozenset()
    pending: tuple[Save, ...] = ()
    tables: Mapping[str, tuple[Table, ...]] = attrs.Factory(dict)


def needed(
    configuration: Configuration, rules: StoreRules, index: int, prefix: Prefix, start: int, end: int
) -> Iterator[Label]:
    """Keys of the objects of one group that a load of [start, end) needs so that a request can resume at `end`: of full
    attention all blocks, of a sliding window those that the window sees, of a recurrent group state@end.

    The one place where an interval becomes keys: lookup, load and checks all use it.
    """
    group = configuration.groups[index]
    span = object_span(rules, group)
    for number in dict.fromkeys(column // rules.object_blocks for column in columns_read(group, start, end)):
        yield Label(index, prefix[: min(end, (number + 1) * span)])


def columns_read(group: Group, start: int, end: int) -> range:
    """Columns of one group with something of [start, end) that a request needs to resume at `end`."""
    first = start
    if group.recurrent:
        first = max(start, end - 1)
    elif group.window is not None:
        first = max(start, end - group.window + 1)
    return range(first // group.block, columns_for(end, group.block) if first < end else 0)


def object_span(rules: StoreRules, group: Group) -> int:
    """Tokens of one object of a group."""
    return rules.object_blocks * group.block


def found(configuration: Configuration, rules: StoreRules, store: Store, prefix: Prefix, start: int) -> int:
    """The boundary that a lookup of `prefix` from boundary `start` finds; `start` if nothing is found."""
    cap = len(prefix) - (rules.last_token is LastToken.BELOW)

    # A load of less than an object is left out, where objects hold several blocks (`_lookup_complete_chunks`).
    least = max(object_span(rules, group) for group in configuration.groups) if rules.object_blocks > 1 else 1

    def backed(index: int, boundary: int) -> bool:
        return store.keys.issuperset(needed(configuration, rules, index, prefix, start, boundary))

    def goes_on(index: int, boundary: int) -> bool:
        return Label(index, prefix[: boundary + object_span(rules, configuration.groups[index])]) in store.keys

    def greatest(indexes: Iterable[int], bound: int, unit: int = hit_unit(configuration, rules)) -> int:
        boundary = floor_to(bound, unit)
        while boundary - start >= least and not all(backed(index, boundary) for index in indexes):
            boundary -= unit
        return boundary if boundary - start >= least else start

    attention_first = sorted(range(len(configuration.groups)), key=lambda index: configuration.groups[index].recurrent)
    match rules.match:
        case Match.INTERSECTION:
            return greatest(attention_first, cap)
        case Match.LEAST_OF_GREATEST:
            return min(greatest([index], cap) for index in attention_first)
        case Match.ATTENTION_ONLY:
            return greatest([index for index in attention_first if not configuration.groups[index].recurrent], cap)
        case Match.CONSECUTIVE:
            boundary = greatest(attention_first, cap)
            while boundary > start and not all(goes_on(index, boundary) for index in attention_first):
                boundary = greatest(attention_first, boundary - 1)
            return boundary
        case Match.BLOCK_AROUND:
            unit = rules.object_blocks * (configuration.mamba_block or 1)
            return _blocks_around(configuration, rules, store, prefix, start, floor_to(cap, unit))
        case Match.TRUNCATED_ATTENTION:
            boundary = cap
            for index in attention_first:
                group = configuration.groups[index]
                boundary = greatest([index], boundary, configuration.hash_block if group.recurrent else group.block)
            return boundary


def hit_unit(configuration: Configuration, rules: StoreRules) -> int:
    """The unit of the boundaries at which objects of every group end, in tokens."""
    return rules.object_blocks * configuration.scheduler_block


def _blocks_around(
    configuration: Configuration, rules: StoreRules, store: Store, prefix: Prefix, start: int, bound: int
) -> int:
    """What attention has from `start` on, up to `bound`, as far as recurrent groups have the object around it."""
    groups = sorted(enumerate(configuration.groups), key=lambda entry: entry[1].recurrent)
    boundary = bound
    while groups:
        before = boundary
        for index, group in groups:
            span = object_span(rules, group)
            if boundary - start < span:
                return start
            numbers = range(start // span, min(columns_for(boundary, span), len(prefix) // span))
            stored = [Label(index, prefix[: (number + 1) * span]) in store.keys for number in numbers]
            run = stored.index(False) if False in stored else len(stored)
            if group.recurrent:
                run = max((number + 1 for number, there in enumerate(stored) if there), default=0)
            boundary = min(boundary, (numbers.start + run) * span)
            if boundary - start < span:
                return start
        # What attention has below its own boundary is not asked for again.
        groups = [entry for entry in groups if entry[1].recurrent] if boundary < before else []
    return boundary


def answer(configuration: Configuration, rules: StoreRules, store: Store, prefix: Prefix, asked: int) -> int:
    """External tokens that the store answers when it is asked about `prefix` from boundary `asked`."""
    boundary = found(configuration, rules, store, prefix, asked)
    if rules.last_token is LastToken.COUNTED_OFF:
        boundary = max(asked, min(boundary, len(prefix) - 1))
    return boundary - asked


def fetches(
    configuration: Configuration,
    rules: StoreRules,
    store: Store,
    prefix: Prefix,
    tables: tuple[Table, ...],
    start: int,
    end: int,
) -> tuple[Fetch, ...]:
    """What a load of [start, end) fetches into the blocks of `tables`."""
    if rules.last_token is LastToken.COUNTED_OFF:
        end = found(configuration, rules, store, prefix, start)
    fetched: list[Fetch] = []
    for index, (group, table) in enumerate(zip(configuration.groups, tables, strict=True)):
        span = object_span(rules, group)
        last = columns_for(end, span) * span if rules.match is Match.BLOCK_AROUND else end
        for column in columns_read(group, start, last):
            number, before = divmod(column, rules.object_blocks)
            label = Label(index, prefix[: min(last, (number + 1) * span)])
            if group.recurrent and rules.match is Match.ATTENTION_ONLY and label not in store.keys:
                continue
            if column < len(table) and table[column] != NULL_BLOCK:
                fetched.append(Fetch(label, table[column], rules.object_blocks - 1 - before))
    return tuple(fetched)


def check_load_start(
    configuration: Configuration, rules: StoreRules, pool: Pool, tables: tuple[Table, ...], start: int, end: int
) -> None:
    """Raises EngineAssertion if the first unhashed block of a group, by which a load is found to begin, lies below
    `start` (`OffloadingConnectorScheduler.update_state_after_alloc`)."""
    if rules.load_start is LoadStart.LOCAL_HIT:
        return
    for index, (group, table) in enumerate(zip(configuration.groups, tables, strict=True)):
        pending = table[: columns_for(end, group.block)]
        unhashed = (column for column, block in enumerate(pending) if block and pool.labels[block] is None)
        first = next(unhashed, len(pending))
        if first * group.block < start:
            raise EngineAssertion(
                f"a load of [{start}, {end}) begins in column {first} of group {index}, at {first * group.block}"
            )


def saves(
    configuration: Configuration,
    leaf: Leaf,
    store: Store,
    request: Request,
    end: int,
    handed_over: Iterable[tuple[Label, int]],
) -> Iterator[Save]:
    """What is to be saved once `request` has run up to `end`: attention whose objects are full by then, by their place
    in the request's table, and the recurrent states that the scheduler hands over, each with its block, as far as an
    object ends there.

    A recurrent state cannot be found by its place: columns are nulled, and their blocks change hands
    (`boundary_state_offloads` in `KVConnectorBlockState`, vllm/v1/core/sched/output.py).
    """
    rules = leaf.store
    assert rules is not None
    states: Iterable[tuple[Label, Table]] = (
        (label, (block,))
        for label, block in handed_over
        if rules.object_blocks == 1 or len(label.prefix) % object_span(rules, configuration.groups[label.group]) == 0
    )
    if rules.state_source is StateSource.BY_COLUMN:
        tables = store.tables.get(request.name, ((),) * len(configuration.groups))
        states = _full_objects(configuration, rules, request, tables, end, recurrent=True)
    end = min(end, len(request.tokens))
    known = store.keys.union(save.label for save in store.pending)
    attention = _full_objects(configuration, rules, request, request.tables, end, recurrent=False)
    for label, blocks in (*attention, *states):
        group = configuration.groups[label.group]
        if group.recurrent:
            dropped = rules.output_states is OutputStates.DROPPED and len(label.prefix) > request.prompt_length
            if dropped or rules.state_source is StateSource.NOT_KEPT:
                continue
        if label not in known and _is_saved(rules, group, label, blocks):
            save = Save(leaf.name, request.name, label, blocks, _held(rules, blocks, request))
            counts_all = rules.null_blocks is NullBlocks.COUNTED
            yield attrs.evolve(save, counted=len(blocks)) if counts_all else save


def _held(rules: StoreRules, blocks: Table, request: Request) -> Table:
    """Blocks that are referenced until the save of `blocks` of `request` is done."""
    if not rules.references_sources:
        return ()
    held = (blocks,) if rules.held_blocks is HeldBlocks.SAVED else request.tables
    return tuple(block for table in held for block in table if block != NULL_BLOCK)


def _full_objects(
    configuration: Configuration,
    rules: StoreRules,
    request: Request,
    tables: tuple[Table, ...],
    end: int,
    *,
    recurrent: bool,
) -> Iterator[tuple[Label, Table]]:
    """The objects that end at `end` or below: key, and blocks by their place."""
    width = rules.object_blocks
    for index, (group, table) in enumerate(zip(configuration.groups, tables, strict=True)):
        if group.recurrent is recurrent:
            for after in range(width, min(end // group.block, len(table)) + 1, width):
                yield Label(index, request.tokens[: after * group.block]), table[after - width : after]


def _is_saved(rules: StoreRules, group: Group, label: Label, blocks: Table) -> bool:
    """Whether the object is saved, some of whose blocks may be null."""
    match rules.null_blocks:
        case NullBlocks.SKIPPED:
            read = columns_read(group, 0, len(label.prefix))
            return blocks[-1] != NULL_BLOCK and NULL_BLOCK not in blocks[max(0, len(blocks) - len(read)) :]
        case NullBlocks.LAST_DECIDES | NullBlocks.COUNTED:
            return blocks[-1] != NULL_BLOCK
        case NullBlocks.STORED:
            return group.recurrent or blocks[-1] != NULL_BLOCK


def seen(store: Store, rules: StoreRules, chunk: Chunk) -> Store:
    """`store` after its scheduler side was told the new blocks of a chunk."""
    if rules.state_source is not StateSource.BY_COLUMN:
        return store
    tables = chunk.new_blocks
    if not chunk.starts:
        known = store.tables[chunk.request]
        tables = tuple(old + new for old, new in zip(known, chunk.new_blocks, strict=True))
    return attrs.evolve(store, tables={**store.tables, chunk.request: tables})


def changing_hands(
    leaf: Leaf, store: Store, plan: StepPlan, announced: Iterable[Load]
) -> tuple[tuple[Save, ...], tuple[Save, ...]]:
    """Pending saves whose block is taken in the step, as far as the store notices: those that are done before, and
    those that are given up. `announced` are the loads of the step, the asynchronous ones too."""
    rules = leaf.store
    assert rules is not None
    taken = set(plan.taken)
    if rules.guard is Guard.FENCE_OWN_LOADS:
        told = [chunk.new_blocks for chunk in plan.chunks]
        told += [load.tables for load in announced if load.leaf == leaf]
        taken &= {block for tables in told for table in tables for block in table}
    affected = tuple(save for save in store.pending if not taken.isdisjoint(save.blocks))
    match rules.guard:
        case Guard.FENCE | Guard.FENCE_OWN_LOADS:
            return affected, ()
        case Guard.OWNED:
            return (), affected
        case Guard.REFERENCE | Guard.NOTHING:
            return (), ()
