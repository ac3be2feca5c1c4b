"""What a failed synchronous load undoes.

Mirrors the outcome of `Scheduler._update_requests_with_invalid_blocks` for several groups in 0.30 (recompute policy):
the whole request goes back to 0 tokens, and so does every request of the step that shares a failed block.
"""

from __future__ import annotations

import attrs

from model.configuration import Configuration
from model.geometry import columns_written
from model.in_flight import InFlight, Work
from model.plan import Chunk, Load, Table
from model.request import Status
from model.scheduler import Scheduler, preempt


def roll_back_failed_loads(scheduler: Scheduler, step: InFlight) -> tuple[Scheduler, tuple[str, ...]]:
    """Preempt every request that has a block of a failed load, or a block that such a request writes, in the executed
    step or in one in flight.

    These blocks lose their hashes. A request that is loading and had hit one of them fails with its own load. Returns
    the requests that were rolled back: what they read, wrote or sampled in the step counts for nothing.
    """
    configuration = scheduler.configuration
    poisoned = {block for load in step.plan.loads if load.fails for block in _destinations(configuration, load)}
    if not poisoned:
        return scheduler, ()
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
    """The request starts again, unless it has ended or was preempted in between; its output in flight is dropped."""
    request = scheduler.requests.get(name)
    if request is None:
        return scheduler
    if request.status is Status.RUNNING and poisoned & _blocks(request.tables):
        return preempt(scheduler, name, drop_output=True)
    return scheduler.with_request(attrs.evolve(request, drop_stale=request.stale > 0))


def _blocks(tables: tuple[Table, ...]) -> set[int]:
    return {block for table in tables for block in table if block}


def _destinations(configuration: Configuration, load: Load) -> set[int]:
    return {
        table[column]
        for index, (group, table) in enumerate(zip(configuration.groups, load.tables, strict=True))
        for column in load.columns(index, group)
        if table[column]
    }


def _written(configuration: Configuration, chunk: Chunk, work: Work) -> set[int]:
    """Blocks that the chunk writes."""
    return {
        table[column]
        for group, table in zip(configuration.groups, work.tables, strict=True)
        for column in columns_written(chunk.computed, chunk.end, group.block, group.recurrent)
        if table[column]
    }
