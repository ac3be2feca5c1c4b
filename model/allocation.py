"""Block tables of one request: adopting hits, allocating, retiring, publishing, freeing.

Mirrors `KVCacheManager.allocate_slots` and the managers' `add_local_computed_blocks`,
`allocate_external_computed_blocks`, `allocate_new_blocks`, `remove_skipped_blocks` and `cache_blocks`
(vllm/v1/core/kv_cache_manager.py, single_type_kv_cache_manager.py). Whether enough blocks are free is found out by
taking them; vLLM estimates first.
"""

from __future__ import annotations

from model.configuration import Configuration, Group, StateMode
from model.geometry import column_ending_at, columns_for, floor_to
from model.internal_checkpoint import publish_checkpoint, reserved
from model.partial_tails import copy_tail, publish_tails, shared_tails
from model.plan import Copy, Table
from model.pool import NULL_BLOCK, Label, Pool
from model.request import Request
from model.retention import is_kept
from model.rules.scheduling import Adoption, Retirement, StateRetirement
from model.rules.states import RunningMark, TailCopyHold
from model.speculation import relocate
from model.values import evolve


def columns_out_of_sight(group: Group, computed: int) -> int:
    """Leading columns that no token from `computed` on reads (`get_num_skipped_tokens`, in whole blocks).

    A recurrent group reads only state@computed.
    """
    if group.recurrent:
        return column_ending_at(computed, group.block) if computed else 0
    return group.sees_from(computed) // group.block


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
    kept: list[Table] = []
    published: list[int] = []
    for group, hit in zip(configuration.groups, hits, strict=True):
        skipped = columns_out_of_sight(group, resume)
        kept.append(hit[skipped:])
        pool = pool.touch(kept[-1])
        tables.append((NULL_BLOCK,) * skipped + kept[-1])
        published.append(len(tables[-1]))
        if external > 0 and configuration.release.adoption is Adoption.GROUP_BY_GROUP:
            pool, tables[-1] = _take_up_to(pool, tables[-1], columns_for(resume, group.block))
    if external > 0 and configuration.release.adoption is Adoption.ALL_HITS_FIRST:
        for index, group in enumerate(configuration.groups):
            pool, tables[index] = _take_up_to(pool, tables[index], columns_for(resume, group.block))
    tails = shared_tails(configuration, tuple(tables), tuple(kept), local)
    for index, column in tails:
        published[index] = column
    return pool, evolve(request, tables=tuple(tables), published=tuple(published), tails=tails)


def _take_up_to(pool: Pool, table: Table, columns: int) -> tuple[Pool, Table]:
    """`table` with as many new blocks as it lacks of `columns`."""
    pool, taken = pool.take(max(0, columns - len(table)))
    return pool, table + taken


def retire(configuration: Configuration, pool: Pool, request: Request) -> tuple[Pool, Request]:
    """Release what no later token reads; its columns become null. A released state can be hit until it is reused."""
    processed = request.computed
    if configuration.release.retirement is Retirement.PROCESSED:
        processed = max(0, processed - request.in_flight)
    tables: list[Table] = []
    for group, table in zip(configuration.groups, request.tables, strict=True):
        skipped = min(columns_out_of_sight(group, processed), len(table))
        kept = _overlooked(configuration, group, request, table[:skipped])
        pool = pool.release(block for column, block in reversed([*enumerate(table[:skipped])]) if column not in kept)
        nulled = tuple(block if column in kept else NULL_BLOCK for column, block in enumerate(table[:skipped]))
        tables.append(nulled + table[skipped:])
    return pool, evolve(request, tables=tuple(tables))


def _overlooked(configuration: Configuration, group: Group, request: Request, out_of_sight: Table) -> set[int]:
    """Columns out of sight that are not released all the same (see `StateRetirement`)."""
    rule = configuration.release.state_retirement
    if not group.recurrent or configuration.steps_in_flight == 1 or rule is StateRetirement.EVERY_COLUMN:
        return set()
    nulls = [column for column, block in enumerate(out_of_sight) if block == NULL_BLOCK]
    return set(range(max(nulls, default=0))) - {request.last_state}


def extend(
    configuration: Configuration, pool: Pool, request: Request, start: int, tokens: int, ahead: int = 0
) -> tuple[Pool, Request, tuple[Copy, ...]]:
    """Give the request room for `tokens` tokens, and attention for `ahead` more: a recurrent group gets one block, for
    the state at the end, if it keeps no others, and scratch blocks behind it the first time; later these move on with
    the running state. Before that, a partial tail in which the request would write is copied; the copies are returned.

    A request that runs keeps its block, for its worker's table only grows; another one goes on in the copy. The chunk
    that follows begins at `start` tokens, and may store a checkpoint in a block of its own.
    """
    checkpoint = None
    tails = dict(request.tails)
    ran = request.computed > 0 and not request.unmarked
    tables: list[Table] = []
    copies: list[Copy] = []
    took_state = False
    last_state = request.last_state
    for index, (group, table) in enumerate(zip(configuration.groups, request.tables, strict=True)):
        sparse = group.recurrent and configuration.state_mode is StateMode.ALIGN
        scratch = configuration.drafts if sparse else 0
        columns = columns_for(tokens if group.recurrent else tokens + ahead, group.block)
        before = len(table)
        missing = max(0, columns + scratch - before)
        own = reserved(configuration, request, table, start, tokens) if sparse else None
        checkpoint = own or checkpoint
        if sparse and missing:
            skipped = columns - 1 - (own is not None)
            table += (NULL_BLOCK,) * (skipped - before)
            table = relocate(pool, table, before, scratch if ran else 0, skipped)
        pool, taken = pool.take(max(0, columns + scratch - len(table)) + (index in tails))
        if index in tails:
            replaces = not (group.recurrent and ran)
            pool, table, copy = copy_tail(pool, table, index, tails[index], taken[0], replaces=replaces)
            copies.append(copy)
        tables.append(table + taken[index in tails :])
        took_state |= group.recurrent and bool(taken)
        if group.recurrent and missing and before and configuration.steps_in_flight > 1:
            last_state = before - 1 - (scratch if ran else 0)
    hold = configuration.connector is not None and configuration.release.tail_copy_hold is TailCopyHold.UNTIL_FREED
    held = tuple(copy.destination for copy in copies if hold and not copy.replaces)
    pool = pool.touch(held)
    by_new_block = configuration.fine_grained and configuration.release.running_mark is RunningMark.NEW_STATE_BLOCK
    unmarked = by_new_block and not ran and not took_state
    return (
        pool,
        evolve(
            request,
            tables=tuple(tables),
            tails=(),
            unmarked=unmarked,
            held=request.held + held,
            checkpoint=checkpoint,
            last_state=last_state,
        ),
        tuple(copies),
    )


def publish(
    configuration: Configuration, pool: Pool, request: Request, tokens: int
) -> tuple[Pool, Request, frozenset[Label]]:
    """Cache the request's full blocks below `tokens` tokens, and its partial tails; also returns the labels of
    recurrent states among them.

    Without fine-grained hits nothing beyond the last multiple of the scheduler block is cached (`_align_cacheable`),
    but for the block that a draft group looks at and then drops (`get_num_cacheable_tokens`).
    """
    known = min(tokens, len(request.tokens))
    cacheable = known if configuration.fine_grained else floor_to(known, configuration.scheduler_block)
    dropping = configuration.dropping
    published: list[int] = []
    states: set[Label] = set()
    for index, (group, table) in enumerate(zip(configuration.groups, request.tables, strict=True)):
        drops = index in dropping
        own = min(known, cacheable + group.block) if drops and cacheable else cacheable
        full = own // group.block
        for column in range(request.published[index], full):
            block = table[column]
            if block != NULL_BLOCK and is_kept(configuration, request, index, column, own):
                label = Label(index, request.tokens[: (column + 1) * group.block])
                pool = pool.publish(block, label)
                if group.recurrent:
                    states.add(label)
        published.append(max(request.published[index], full))
    request = evolve(request, published=tuple(published))
    if request.checkpoint is not None:
        for index, group in enumerate(configuration.groups):
            if group.recurrent:
                pool, checkpoints = publish_checkpoint(configuration, pool, request, index)
                states |= checkpoints
        # The block of a checkpoint was cached for its column's end before.
        kept = {pool.labels[block] for table in request.tables for block in table}
        states &= kept
    pool, request, tails = publish_tails(configuration, pool, request, cacheable, max(tokens, request.computed))
    return pool, request, frozenset(states) | tails


def free(pool: Pool, request: Request) -> tuple[Pool, Request]:
    """Release all blocks of the request, group after group, each tail first; it has computed nothing any more."""
    pool = pool.release(request.held)
    for table in request.tables:
        pool = pool.release(reversed(table))
    return pool, evolve(
        request,
        tables=(),
        published=(),
        computed=0,
        loads=(),
        started=False,
        tails=(),
        unmarked=False,
        held=(),
        checkpoint=None,
        last_state=None,
        rerun_to=0,
    )
