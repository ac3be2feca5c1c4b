"""Block tables of one request: adopting hits, allocating, retiring, publishing, freeing.

Mirrors `KVCacheManager.allocate_slots` and the managers' `add_local_computed_blocks`,
`allocate_external_computed_blocks`, `allocate_new_blocks`, `remove_skipped_blocks` and `cache_blocks`
(vllm/v1/core/kv_cache_manager.py, single_type_kv_cache_manager.py). Whether enough blocks are free is found out by
taking them; vLLM estimates first.
"""

from __future__ import annotations

import attrs

from model.configuration import Configuration, Group, GroupKind
from model.geometry import column_ending_at, columns_for, floor_to
from model.plan import Table
from model.pool import NULL_BLOCK, Label, Pool
from model.release import Adoption
from model.request import Request


def columns_out_of_sight(group: Group, computed: int) -> int:
    """Leading columns that no token from `computed` on reads (`get_num_skipped_tokens`, in whole blocks).

    A recurrent group reads only state@computed; a sliding window reads the window - 1 tokens before.
    """
    if computed == 0 or group.kind is GroupKind.FULL_ATTENTION:
        return 0
    if group.recurrent:
        return column_ending_at(computed, group.block)
    assert group.window is not None
    return max(0, computed - group.window + 1) // group.block


def adopt(
    configuration: Configuration,
    pool: Pool,
    request: Request,
    hits: tuple[Table, ...],
    local: int,
    external: int,
) -> tuple[Pool, Request]:
    """Give the request its hit blocks and blocks for `external` tokens, so that it can resume at local + external.

    In which order, `Adoption` says. (`allocate_new_computed_blocks`, vllm/v1/core/kv_cache_coordinator.py)
    """
    resume = local + external
    tables: list[Table] = []
    published: list[int] = []
    for group, hit in zip(configuration.groups, hits, strict=True):
        skipped = columns_out_of_sight(group, resume)
        pool = pool.touch(hit[skipped:])
        tables.append((NULL_BLOCK,) * skipped + hit[skipped:])
        published.append(len(tables[-1]))
        if external > 0 and configuration.release.adoption is Adoption.GROUP_BY_GROUP:
            pool, tables[-1] = _take_up_to(pool, tables[-1], columns_for(resume, group.block))
    if external > 0 and configuration.release.adoption is Adoption.ALL_HITS_FIRST:
        for index, group in enumerate(configuration.groups):
            pool, tables[index] = _take_up_to(pool, tables[index], columns_for(resume, group.block))
    return pool, attrs.evolve(request, tables=tuple(tables), published=tuple(published))


def _take_up_to(pool: Pool, table: Table, columns: int) -> tuple[Pool, Table]:
    """`table` with as many new blocks as it lacks of `columns`."""
    pool, taken = pool.take(max(0, columns - len(table)))
    return pool, table + taken


def retire(configuration: Configuration, pool: Pool, request: Request) -> tuple[Pool, Request]:
    """Release what no later token reads; its columns become null. A released state can be hit until it is reused."""
    tables: list[Table] = []
    for group, table in zip(configuration.groups, request.tables, strict=True):
        skipped = min(columns_out_of_sight(group, request.computed), len(table))
        pool = pool.release(reversed(table[:skipped]))
        tables.append((NULL_BLOCK,) * skipped + table[skipped:])
    return pool, attrs.evolve(request, tables=tuple(tables))


def extend(configuration: Configuration, pool: Pool, request: Request, tokens: int) -> tuple[Pool, Request]:
    """Give the request room for `tokens` tokens. A recurrent group gets one block, for the state at the end."""
    tables: list[Table] = []
    for group, table in zip(configuration.groups, request.tables, strict=True):
        missing = max(0, columns_for(tokens, group.block) - len(table))
        nulls = max(0, missing - 1) if group.recurrent else 0
        pool, taken = pool.take(missing - nulls)
        tables.append(table + (NULL_BLOCK,) * nulls + taken)
    return pool, attrs.evolve(request, tables=tuple(tables))


def publish(
    configuration: Configuration, pool: Pool, request: Request, tokens: int
) -> tuple[Pool, Request, frozenset[Label]]:
    """Cache the request's full blocks below `tokens` tokens; also returns the labels of recurrent states among them.

    Hits are multiples of the scheduler block, so nothing beyond the last multiple is cached (`_align_cacheable`), but
    for the block that a draft group looks at and then drops (`get_num_cacheable_tokens`).
    """
    known = min(tokens, len(request.tokens))
    cacheable = floor_to(known, configuration.scheduler_block)
    dropping = configuration.dropping
    published: list[int] = []
    states: set[Label] = set()
    for index, (group, table) in enumerate(zip(configuration.groups, request.tables, strict=True)):
        drops = index in dropping
        full = (min(known, cacheable + group.block) if drops and cacheable else cacheable) // group.block
        for column in range(request.published[index], full):
            block = table[column]
            if block != NULL_BLOCK and _reachable(configuration, group, column, drops=drops):
                label = Label(index, request.tokens[: (column + 1) * group.block])
                pool = pool.publish(block, label)
                if group.recurrent:
                    states.add(label)
        published.append(max(request.published[index], full))
    return pool, attrs.evolve(request, published=tuple(published)), frozenset(states)


def _reachable(configuration: Configuration, group: Group, column: int, *, drops: bool) -> bool:
    """Whether a hit can need the block: of a sliding window only those that the window sees from a multiple of the
    scheduler block, and the one after it that is dropped (`SlidingWindowManager.reachable_block_mask`)."""
    if group.window is None:
        return True
    columns = configuration.scheduler_block // group.block
    needed = columns_for(group.window - 1, group.block) + drops
    return needed >= columns or (column >= drops and (column - drops) % columns >= columns - needed)


def free(pool: Pool, request: Request) -> tuple[Pool, Request]:
    """Release all blocks of the request, group after group, each tail first; it has computed nothing any more."""
    for table in request.tables:
        pool = pool.release(reversed(table))
    return pool, attrs.evolve(request, tables=(), published=(), computed=0, loads=(), started=False)
