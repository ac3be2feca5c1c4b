"""What becomes of requests whose synchronous load failed, by the rule of the release.

Mirrors `Scheduler._handle_invalid_blocks` and `_update_requests_with_invalid_blocks`
(vllm/v1/core/sched/scheduler.py). Preempting them is in `model/rollback.py`.
"""

from __future__ import annotations

import attrs

from model.configuration import Configuration, LoadFailure
from model.in_flight import InFlight
from model.plan import Entry, Table, entries_of
from model.request import Request, Status
from model.rollback import roll_back
from model.rules.loads import FailureNames, Recovery
from model.scheduler import Scheduler, finish
from model.values import evolve


@attrs.frozen
class Recovered:
    """The scheduler after failed loads. What the requests in `rolled_back` read, wrote or sampled in the step counts
    for nothing. `assertion`: why the engine stopped."""

    scheduler: Scheduler
    rolled_back: tuple[str, ...] = ()
    assertion: str = ""


def recover(scheduler: Scheduler, step: InFlight) -> Recovered:
    """The scheduler after `step` has executed, with those of its loads that failed."""
    configuration = scheduler.configuration
    rule = configuration.release.recovery
    failed = {entry for load in step.plan.loads for entry in load.failed(configuration.groups)}
    if not failed or rule is Recovery.UNNOTICED:
        return Recovered(scheduler)
    if rule is Recovery.ONE_GROUP and len(configuration.groups) > 1:
        return Recovered(scheduler, assertion="a failed load of several groups: too many values to unpack (expected 1)")
    takings = [frozenset(later.plan.taken) for later in scheduler.in_flight] + [frozenset(scheduler.pool.taken)]
    if configuration.release.failure_names is FailureNames.BLOCK_NUMBERS:
        failed = {(group, block) for group in range(len(configuration.groups)) for _, block in failed}
        takings = [frozenset()] * len(takings)
    if rule is Recovery.PREEMPTED:
        return Recovered(*roll_back(scheduler, step, failed, takings))
    remaining = {(group, block) for group, block in failed if not any(block in taken for taken in takings)}
    return Recovered(*_restart_in_place(scheduler, step, remaining))


def _restart_in_place(scheduler: Scheduler, step: InFlight, failed: set[Entry]) -> tuple[Scheduler, tuple[str, ...]]:
    """Requests that hold a failed block run again from it, in the blocks that they have. With several groups there is
    no one position: from 0. One that shares a failed block with an earlier request leaves it to that one."""
    configuration = scheduler.configuration
    affected: list[str] = []
    repeated: set[int] = set()
    for name in scheduler.running:
        request = scheduler.requests[name]
        if failed.isdisjoint(entries_of(request.tables)):
            continue
        affected.append(name)
        if len(configuration.groups) > 1:
            computed = 0
        else:
            before = request.computed - sum(
                chunk.settled - chunk.computed for chunk in step.plan.chunks if chunk.request == name
            )
            blocks = {block for _, block in failed}
            computed = _first_failed(configuration, request.tables[0], blocks - repeated, before)
            repeated |= blocks & set(request.tables[0])
        scheduler = scheduler.with_request(evolve(request, computed=computed))
    for request in scheduler.requests.values():
        if request.status is Status.LOADING and not failed.isdisjoint(entries_of(request.tables)):
            scheduler = scheduler.with_request(evolve(request, hit_withdrawn=True))
    if configuration.load_failure is LoadFailure.FAIL:
        for name in affected:
            scheduler = evolve(scheduler, pool=scheduler.pool.unpublish(_blocks(scheduler.requests[name])))
            scheduler = finish(scheduler, name)
    return scheduler, tuple(affected)


def _first_failed(configuration: Configuration, table: Table, failed: set[int], before: int) -> int:
    """Where the first failed block below `before` tokens begins; `before` if there is none."""
    block = configuration.groups[0].block
    return min(
        (column * block for column, held in enumerate(table) if held in failed and column * block < before),
        default=before,
    )


def _blocks(request: Request) -> set[int]:
    return {block for table in request.tables for block in table if block}
