"""What a failed synchronous load undoes where requests are preempted for it (proposed in vLLM #56733).

Each request goes back to 0 tokens with new blocks, and so does every request that shares a failed block, or one that
was computed from it.
"""

from __future__ import annotations

from model.configuration import Configuration, Group, LoadFailure
from model.geometry import column_ending_at, columns_written
from model.in_flight import InFlight, Work
from model.internal_checkpoint import stored_by
from model.plan import Chunk, Entry, entries_of
from model.request import Status
from model.scheduler import Scheduler, finish, preempt
from model.speculation import copy_back, draft_states
from model.values import evolve


def roll_back(
    scheduler: Scheduler, step: InFlight, failed: set[Entry], takings: list[frozenset[int]]
) -> tuple[Scheduler, tuple[str, ...]]:
    """Preempt every request that has a failed block, or a block that such a request writes, in the executed step or in
    one in flight; where failed loads are to fail requests, these end. `takings` are the blocks that changed hands for
    each step in flight, and after the last.

    These blocks lose their hashes. A request that is loading and had hit one of them fails with its own load. Returns
    the requests that were rolled back: what they read, wrote or sampled in the step counts for nothing.
    """
    poisoned, rolled_back = _spread(scheduler.configuration, (step, *scheduler.in_flight), failed, takings)
    for name, request in scheduler.requests.items():
        if request.status is Status.LOADING and poisoned & entries_of(request.tables):
            scheduler = scheduler.with_request(evolve(scheduler.requests[name], hit_withdrawn=True))
    scheduler = evolve(scheduler, pool=scheduler.pool.unpublish({block for _, block in poisoned}))
    for name in reversed(rolled_back):
        scheduler = _restarted(scheduler, name, poisoned)
    return scheduler, rolled_back


def _spread(
    configuration: Configuration, steps: tuple[InFlight, ...], failed: set[Entry], takings: list[frozenset[int]]
) -> tuple[set[Entry], tuple[str, ...]]:
    """All that was computed from what failed, as far as it has not changed hands since, and by which requests."""
    poisoned = dict.fromkeys(failed, 0)
    affected: list[str] = []
    copies = [(number, copy) for number, each in enumerate(steps) for copy in each.plan.copies]
    pending = [(number, chunk, work) for number, each in enumerate(steps) for chunk, work in each.chunks]

    def remains(entry: Entry, number: int) -> bool:
        """Whether the entry was poisoned, and is the same when step `number` is planned."""
        return entry in poisoned and not any(entry[1] in taken for taken in takings[poisoned[entry] : number])

    while hit := [
        (number, chunk, work)
        for number, chunk, work in pending
        if any(remains(entry, number) for entry in entries_of(work.tables))
    ]:
        for number, chunk, work in hit:
            pending.remove((number, chunk, work))
            poisoned |= dict.fromkeys(_written(configuration, chunk, work), number)
            affected.append(chunk.request)
        for number, copy in copies:
            destination = copy.group, copy.destination
            if remains((copy.group, copy.source), number):
                poisoned[destination] = max(number, poisoned.get(destination, 0))
    return {entry for entry in poisoned if remains(entry, len(takings))}, tuple(dict.fromkeys(affected))


def _restarted(scheduler: Scheduler, name: str, poisoned: set[Entry]) -> Scheduler:
    """The request starts again, or ends, unless it did either in between; its output in flight is dropped."""
    request = scheduler.requests.get(name)
    if request is None:
        return scheduler
    if request.status is Status.RUNNING and poisoned & entries_of(request.tables):
        if scheduler.configuration.load_failure is LoadFailure.FAIL:
            return finish(scheduler, name)
        return preempt(scheduler, name, drop_output=True)
    return scheduler.with_request(evolve(request, drop_stale=request.stale > 0))


def _written(configuration: Configuration, chunk: Chunk, work: Work) -> set[Entry]:
    """Blocks that the chunk writes."""
    return {
        (index, table[column])
        for index, (group, table) in enumerate(zip(configuration.groups, work.tables, strict=True))
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
    stored = stored_by(configuration, chunk)
    columns = tuple(column_ending_at(boundary, group.block) for boundary in states)
    return columns if stored is None else (stored.column, *columns)
