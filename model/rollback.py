"""What a failed synchronous load undoes where requests are preempted for it (proposed in vLLM #56733).

Each request goes back to 0 tokens with new blocks, and so does every request that shares a failed block, or one that
was computed from it.
"""

from __future__ import annotations

import attrs

from model.configuration import Configuration, Group, LoadFailure
from model.geometry import column_ending_at, columns_written
from model.in_flight import InFlight, Work
from model.internal_checkpoint import checkpoint_of
from model.plan import Chunk, Table
from model.request import Status
from model.scheduler import Scheduler, finish, preempt
from model.speculation import copy_back, draft_states


def roll_back(scheduler: Scheduler, step: InFlight, failed: set[int]) -> tuple[Scheduler, tuple[str, ...]]:
    """Preempt every request that has a failed block, or a block that such a request writes, in the executed step or in
    one in flight; where failed loads are to fail requests, these end.

    These blocks lose their hashes. A request that is loading and had hit one of them fails with its own load. Returns
    the requests that were rolled back: what they read, wrote or sampled in the step counts for nothing.
    """
    configuration = scheduler.configuration
    poisoned = set(failed)
    affected: list[str] = []
    pending = [chunk for each in (step, *scheduler.in_flight) for chunk in each.chunks]
    while hit := [(chunk, work) for chunk, work in pending if poisoned & _blocks(work.tables)]:
        for chunk, work in hit:
            pending.remove((chunk, work))
            poisoned |= _written(configuration, chunk, work)
            affected.append(chunk.request)
    for name, request in scheduler.requests.items():
        if request.status is Status.LOADING and poisoned & _blocks(request.tables):
            scheduler = scheduler.with_request(attrs.evolve(scheduler.requests[name], hit_withdrawn=True))
    scheduler = attrs.evolve(scheduler, pool=scheduler.pool.unpublish(poisoned))
    rolled_back = tuple(dict.fromkeys(affected))
    for name in reversed(rolled_back):
        scheduler = _restarted(scheduler, name, poisoned)
    return scheduler, rolled_back


def _restarted(scheduler: Scheduler, name: str, poisoned: set[int]) -> Scheduler:
    """The request starts again, or ends, unless it did either in between; its output in flight is dropped."""
    request = scheduler.requests.get(name)
    if request is None:
        return scheduler
    if request.status is Status.RUNNING and poisoned & _blocks(request.tables):
        if scheduler.configuration.load_failure is LoadFailure.FAIL:
            return finish(scheduler, name)
        return preempt(scheduler, name, drop_output=True)
    return scheduler.with_request(attrs.evolve(request, drop_stale=request.stale > 0))


def _blocks(tables: tuple[Table, ...]) -> set[int]:
    return {block for table in tables for block in table if block}


def _written(configuration: Configuration, chunk: Chunk, work: Work) -> set[int]:
    """Blocks that the chunk writes."""
    return {
        table[column]
        for group, table in zip(configuration.groups, work.tables, strict=True)
        for column in _columns_written(configuration, chunk, group)
        if table[column]
    }


def _columns_written(configuration: Configuration, chunk: Chunk, group: Group) -> tuple[int, ...]:
    if not group.recurrent:
        return tuple(columns_written(chunk.computed, chunk.end, group.block, recurrent=False))
    if chunk.drafts:
        saved = copy_back(chunk, group.block)
        rows = tuple(column for _, column in draft_states(chunk, group.block))
        return rows if saved is None else (saved.destination, *rows)
    states = configuration.written_states(chunk.computed, chunk.end)
    stored = checkpoint_of(configuration, chunk.computed, chunk.end, chunk.end)
    columns = tuple(column_ending_at(boundary, group.block) for boundary in states)
    return columns if stored is None else (stored.column, *columns)
