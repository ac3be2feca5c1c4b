"""What a failed synchronous load undoes.

Mirrors the outcome of `Scheduler._update_requests_with_invalid_blocks` for several groups in 0.30 (recompute policy):
the whole request goes back to 0 tokens, and so does every request of the step that shares a failed block.
"""

from __future__ import annotations

import attrs

from model.geometry import columns_written
from model.in_flight import InFlight, Published
from model.plan import Load, Table
from model.request import Status
from model.scheduler import Scheduler, preempt


def roll_back_failed_loads(scheduler: Scheduler, step: InFlight) -> tuple[Scheduler, tuple[str, ...]]:
    """Preempt every request that holds a block of a failed load, or a block that such a request wrote in the executed
    step or is yet to write in a step in flight.

    These blocks lose their hashes. A request that is loading and had hit one of them fails with its own load. Returns
    the requests that were rolled back: what they read, wrote or sampled in the step counts for nothing.
    """
    failed = [load for load in step.plan.loads if load.fails]
    if not failed:
        return scheduler, ()
    steps = (step, *scheduler.in_flight)
    poisoned = {block for load in failed for block in _destinations(scheduler, load)}
    for load in failed:
        poisoned |= _written(scheduler, load.request, steps)
    affected: list[str] = []
    while hit := [
        name
        for name in scheduler.running
        if name not in affected and poisoned & _blocks(scheduler.requests[name].tables)
    ]:
        for name in hit:
            affected.append(name)
            poisoned |= _written(scheduler, name, steps)
    for name, request in scheduler.requests.items():
        if request.status is Status.LOADING and poisoned & _blocks(request.tables):
            scheduler = scheduler.with_request(attrs.evolve(scheduler.requests[name], hit_withdrawn=True))
    scheduler = attrs.evolve(scheduler, pool=scheduler.pool.unpublish(poisoned))
    for name in reversed(affected):
        scheduler = preempt(scheduler, name, drop_output=True)
    return scheduler, tuple(affected)


def _blocks(tables: tuple[Table, ...]) -> set[int]:
    return {block for table in tables for block in table if block}


def _destinations(scheduler: Scheduler, load: Load) -> set[int]:
    return {
        table[column]
        for index, (group, table) in enumerate(zip(scheduler.configuration.groups, load.tables, strict=True))
        for column in load.columns(index, group)
        if table[column]
    }


def _written(scheduler: Scheduler, name: str, steps: tuple[InFlight, ...]) -> set[int]:
    """Blocks that the chunks of a request in `steps` write, as far as it still has them, and those that they had
    published: a request that has ended since has no tables."""
    written = {block for step in steps for block in step.published.get(name, Published()).blocks}
    request = scheduler.requests.get(name)
    if request is None or not request.tables:
        return written
    chunks = [chunk for step in steps for chunk in step.plan.chunks if chunk.request == name]
    for group, table in zip(scheduler.configuration.groups, request.tables, strict=True):
        for chunk in chunks:
            columns = columns_written(chunk.computed, chunk.end, group.block, group.recurrent)
            written.update(table[column] for column in columns if column < len(table))
    return written - {0}
