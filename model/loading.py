"""What a load writes into a request's blocks: the conduct of its leaf or the objects it keeps, never its promise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from model.configuration import Configuration, Group
from model.connector import StateRestored
from model.memory import FOREIGN, AttentionKV, Content, Memory, RecurrentState
from model.peer import PeerRules, moves
from model.plan import Load
from model.pool import NULL_BLOCK, Label

Objects = Mapping[tuple[str, Label], tuple[Content, ...]]
"""What the stored objects hold, block by block, by leaf and key."""


@attrs.frozen
class LoadWrite:
    """One block that a load writes, and what it puts there. A `whole` block is written, whatever was in it before."""

    block: int
    content: Content
    whole: bool = False


def writes_of(configuration: Configuration, load: Load, objects: Objects) -> tuple[LoadWrite, ...]:
    """Everything `load` writes. Null blocks are no destination; a load that fails restores nothing."""
    conduct = load.leaf.conduct
    if load.fails or not (load.assigned or conduct.writes_unassigned):
        return ()
    if load.leaf.store is not None:
        failed = load.failed(configuration.groups)
        fetches = (fetch for fetch in load.fetches if (fetch.label.group, fetch.block) not in failed)
        found = ((objects.get((load.leaf.name, fetch.label)), fetch) for fetch in fetches)
        return tuple(LoadWrite(fetch.block, held[-1 - fetch.from_end], whole=True) for held, fetch in found if held)
    if load.leaf.peer is not None:
        return tuple(_transferred(configuration, load, load.leaf.peer))
    writes: list[LoadWrite] = []
    for index, group in enumerate(configuration.groups):
        if index in conduct.omitted_groups:
            continue
        if not load.assigned:
            writes += (LoadWrite(block, FOREIGN) for _, block in _destinations(load, index, group))
        elif group.recurrent:
            if _restores_state(load):
                state = RecurrentState(index, load.prefix[: load.end])
                writes += (LoadWrite(block, state) for _, block in _destinations(load, index, group))
        else:
            writes += _attention_writes(load, index, group)
    return tuple(writes)


def write_loads(configuration: Configuration, memory: Memory, loads: tuple[Load, ...], objects: Objects) -> Memory:
    """`memory` after all of `loads`. Those of leaves that were assigned nothing come last, where they harm most."""
    for load in sorted(loads, key=lambda load: not load.assigned):
        for write in writes_of(configuration, load, objects):
            if write.whole:
                memory = memory.replace(write.block, write.content)
            else:
                memory = memory.write(write.block, write.content)
    return memory


def lacks_objects(load: Load, objects: Objects) -> bool:
    """Whether an object that `load` fetches is not there (any more): such a load cannot succeed."""
    return any((load.leaf.name, fetch.label) not in objects for fetch in load.fetches)


def _transferred(configuration: Configuration, load: Load, rules: PeerRules) -> Iterator[LoadWrite]:
    """What a peer has: KV of its columns, and the one state that it ended with."""
    for index, group in enumerate(configuration.groups):
        destinations = dict(_destinations(load, index, group))
        if group.recurrent:
            state = RecurrentState(index, load.prefix[: load.held])
            yield from (LoadWrite(block, state) for block in destinations.values())
            continue
        for remote, column in moves(rules, load.held, group.block, load.columns(index, group)):
            if column in destinations:
                end = min(load.held, (remote + 1) * group.block)
                content = AttentionKV(index, remote * group.block, load.prefix[:end])
                yield LoadWrite(destinations[column], content, whole=remote != column)


def _restores_state(load: Load) -> bool:
    state = load.leaf.conduct.state
    return state is StateRestored.ALWAYS or (state is StateRestored.IF_BACKED and load.backed)


def _destinations(load: Load, index: int, group: Group) -> Iterator[tuple[int, int]]:
    """Columns of the load's interval in one group, each with its block."""
    table = load.tables[index]
    return (
        (column, table[column])
        for column in load.columns(index, group)
        if table[column] != NULL_BLOCK and not load.fails_at(index, column)
    )


def _attention_writes(load: Load, index: int, group: Group) -> Iterator[LoadWrite]:
    """KV of [start, end), and from the group's own hit on if the leaf restores lagging attention."""
    first = min(load.local[index], load.start) if load.leaf.conduct.lagging_attention else load.start
    for column, block in _destinations(load, index, group):
        start = max(first, column * group.block)
        end = min(load.end, (column + 1) * group.block)
        if start < end:
            yield LoadWrite(block, AttentionKV(index, start, load.prefix[:end]))
