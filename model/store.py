"""What a store has, as its scheduler side sees it: the keys of its objects, what it answers, what it loads and saves.

Mirrors `MooncakeStoreCoordinator.find_longest_cache_hit` and `MooncakeStoreScheduler` (vllm/distributed/kv_transfer/
kv_connector/v1/mooncake/store) and `OffloadingConnectorScheduler` (offloading/scheduler.py). What the objects hold is
the worker's business (`model/worker.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from model.configuration import Configuration, Group
from model.connector import Leaf
from model.geometry import column_ending_at, columns_for, floor_to
from model.plan import Fetch, Save, Table
from model.pool import NULL_BLOCK, Label
from model.request import Request
from model.store_rules import LastToken, Match, OutputStates, StoreRules
from model.tokens import Prefix


@attrs.frozen
class Store:
    """The keys of all objects: which group's KV or state they are, of which prefix."""

    keys: frozenset[Label] = frozenset()


def needed(configuration: Configuration, index: int, prefix: Prefix, start: int, end: int) -> Iterator[Label]:
    """Keys of the objects of one group that a load of [start, end) needs so that a request can resume at `end`: of full
    attention all blocks, of a sliding window those that the window sees, of a recurrent group state@end.

    The one place where an interval becomes keys: lookup, load and checks all use it.
    """
    group = configuration.groups[index]
    if group.recurrent:
        if end > start:
            yield Label(index, prefix[:end])
        return
    for column in _columns(group, start, end):
        yield Label(index, prefix[: min(end, (column + 1) * group.block)])


def _columns(group: Group, start: int, end: int) -> range:
    first = start if group.window is None else max(start, end - group.window + 1)
    return range(first // group.block, columns_for(end, group.block) if first < end else 0)


def found(configuration: Configuration, rules: StoreRules, store: Store, prefix: Prefix, start: int) -> int:
    """The boundary that a lookup of `prefix` from boundary `start` finds; `start` if nothing is found."""
    cap = len(prefix) - (rules.last_token is LastToken.BELOW)

    def backed(index: int, boundary: int) -> bool:
        return store.keys.issuperset(needed(configuration, index, prefix, start, boundary))

    def goes_on(index: int, boundary: int) -> bool:
        return Label(index, prefix[: boundary + configuration.groups[index].block]) in store.keys

    def greatest(indexes: Iterable[int], bound: int, unit: int = configuration.scheduler_block) -> int:
        boundary = floor_to(bound, unit)
        while boundary > start and not all(backed(index, boundary) for index in indexes):
            boundary -= unit
        return max(boundary, start)

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
        case Match.TRUNCATED_ATTENTION:
            boundary = cap
            for index in attention_first:
                group = configuration.groups[index]
                boundary = greatest([index], boundary, configuration.hash_block if group.recurrent else group.block)
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
        if group.recurrent and rules.match is Match.ATTENTION_ONLY:
            continue
        for label in needed(configuration, index, prefix, start, end):
            column = column_ending_at(len(label.prefix), group.block)
            if column < len(table) and table[column] != NULL_BLOCK:
                fetched.append(Fetch(label, table[column]))
    return tuple(fetched)


def saves(
    configuration: Configuration,
    leaf: Leaf,
    store: Store,
    request: Request,
    end: int,
    handed_over: Iterable[tuple[Label, int]],
) -> Iterator[Save]:
    """What is to be saved once `request` has run up to `end`: attention blocks that are full by then, by their place in
    the request's table, and the recurrent states that the scheduler hands over, each with its block.

    A recurrent state cannot be found by its place: columns are nulled, and their blocks change hands
    (`boundary_state_offloads` in `KVConnectorBlockState`, vllm/v1/core/sched/output.py).
    """
    rules = leaf.store
    assert rules is not None
    for label, block in (*_full_blocks(configuration, request, end), *handed_over):
        if configuration.groups[label.group].recurrent:
            dropped = rules.output_states is OutputStates.DROPPED and len(label.prefix) > request.prompt_length
            if dropped or rules.match is Match.ATTENTION_ONLY:
                continue
        if label not in store.keys:
            yield Save(leaf.name, request.name, label, block)


def _full_blocks(configuration: Configuration, request: Request, end: int) -> Iterator[tuple[Label, int]]:
    for index, (group, table) in enumerate(zip(configuration.groups, request.tables, strict=True)):
        if not group.recurrent:
            for column, block in enumerate(table[: end // group.block]):
                if block != NULL_BLOCK:
                    yield Label(index, request.tokens[: (column + 1) * group.block]), block
