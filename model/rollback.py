"""What a failed synchronous load undoes.

Mirrors the outcome of `Scheduler._update_requests_with_invalid_blocks` for several groups in 0.30 (recompute policy):
the whole request goes back to 0 tokens, and so does every request of the step that shares a failed block.
"""

from __future__ import annotations

import attrs

from model.configuration import StateMode
from model.plan import Chunk, Load, StepPlan, Table
from model.request import Request, Status
from model.scheduler import Scheduler, preempt


def roll_back_failed_loads(scheduler: Scheduler, plan: StepPlan) -> tuple[Scheduler, tuple[str, ...]]:
    """Preempt every request that holds a block of a failed load, or a block that such a request wrote in this step.

    These blocks lose their hashes. A request that is loading and had hit one of them fails with its own load. Returns
    the requests that were rolled back: what they read, wrote or sampled in the step counts for nothing.
    """
    poisoned = {block for load in plan.loads if load.fails for block in _destinations(scheduler, load)}
    if not poisoned:
        return scheduler, ()
    affected: list[str] = []
    pending = list(plan.chunks)
    while hit := [chunk for chunk in pending if poisoned & _blocks(scheduler.requests[chunk.request].tables)]:
        for chunk in hit:
            pending.remove(chunk)
            affected.append(chunk.request)
            poisoned |= _written(scheduler, chunk)
    for name, request in scheduler.requests.items():
        if request.status is Status.LOADING and poisoned & _blocks(request.tables):
            scheduler = scheduler.with_request(attrs.evolve(scheduler.requests[name], hit_withdrawn=True))
    scheduler = attrs.evolve(scheduler, pool=scheduler.pool.unpublish(poisoned))
    for name in reversed(affected):
        scheduler = preempt(scheduler, name)
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


def _written(scheduler: Scheduler, chunk: Chunk) -> set[int]:
    """Blocks that the chunk wrote: attention from its first token on, recurrent the running block and that of a
    checkpoint, or from its first token on as well."""
    sparse = scheduler.configuration.state_mode is StateMode.ALIGN
    request: Request = scheduler.requests[chunk.request]
    last = -1 if request.checkpoint is None else -2
    return {
        block
        for group, table in zip(scheduler.configuration.groups, request.tables, strict=True)
        for block in table[last if group.recurrent and sparse else chunk.computed // group.block :]
        if block
    }
