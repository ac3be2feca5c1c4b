"""The scheduler side: its state, and what becomes of requests between steps. It decides; it sees no content.

Mirrors `Scheduler._preempt_request` and `finish_requests` (vllm/v1/core/sched/scheduler.py). The step itself is in
model/step.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from model.adjustment import kept_for_later
from model.allocation import free, retire
from model.configuration import Configuration, LoadFailure, Scheduling
from model.connector import leaves_of
from model.in_flight import InFlight, Work
from model.plan import Table
from model.pool import Pool, new_pool
from model.request import Request, Status
from model.rules.loads import FailedTransfer
from model.rules.scheduling import AbortedChunks, Freeing, Visibility, WaitingOrder
from model.store import Store
from model.tokens import Prefix
from model.values import evolve


@attrs.frozen(slots=False)
class Scheduler:
    """Scheduler state. `requests` are in the order in which they arrived. `skipped` waits before `waiting`: requests
    that load or whose connector did not know yet (see `WaitingOrder`).

    `dropped` are requests whose blocks were freed since the last step was planned. `stores` has the scheduler side of
    each leaf that keeps objects. `in_flight` are the steps that were planned and not executed yet, the oldest first.
    `copied` are blocks that are held for the copies of a step that ran nothing.
    `outputs` are prefixes of requests that have lost their blocks, up to which auxiliary outputs are kept.
    """

    configuration: Configuration
    pool: Pool
    requests: Mapping[str, Request] = attrs.Factory(dict)
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    stores: Mapping[str, Store] = attrs.Factory(dict)
    in_flight: tuple[InFlight, ...] = ()
    copied: tuple[Table, ...] = ()
    outputs: frozenset[Prefix] = frozenset()

    def with_request(self, request: Request) -> Scheduler:
        """The same with one request replaced or added."""
        if self.requests.get(request.name) is request:
            return self
        return evolve(self, requests={**self.requests, request.name: request})

    def with_store(self, leaf: str, store: Store) -> Scheduler:
        """The same with the scheduler side of one store replaced."""
        return evolve(self, stores={**self.stores, leaf: store})

    def without_request(self, name: str) -> Scheduler:
        """The same without the request, in any queue."""
        return evolve(
            self,
            requests={other: request for other, request in self.requests.items() if other != name},
            running=without(self.running, name),
            waiting=without(self.waiting, name),
            skipped=without(self.skipped, name),
        )


def new_scheduler(configuration: Configuration) -> Scheduler:
    """A scheduler with an empty cache and no requests."""
    return Scheduler(configuration, new_pool(configuration.pool_blocks), stores=empty_stores(configuration))


def empty_stores(configuration: Configuration) -> dict[str, Store]:
    """A store without objects for each leaf that keeps some."""
    leaves = () if configuration.connector is None else leaves_of(configuration.connector)
    return {leaf.name: Store() for leaf in leaves if leaf.store is not None}


def in_turn(scheduler: Scheduler, queue: tuple[str, ...]) -> tuple[str, ...]:
    """A queue of requests that wait, in the order in which they are tried: as it is, or by priority
    (`PriorityRequestQueue`)."""
    if scheduler.configuration.scheduling is Scheduling.FCFS:
        return queue
    return tuple(sorted(queue, key=lambda name: _turn(scheduler, name)))


def next_in_turn(scheduler: Scheduler) -> str | None:
    """The request that is tried next; None if none waits (`_select_waiting_queue_for_scheduling`)."""
    queue = (*scheduler.skipped, *scheduler.waiting)
    if scheduler.configuration.release.waiting_order is WaitingOrder.SKIPPED_FIRST:
        # By priority both queues are one.
        queue = in_turn(scheduler, queue)
    return queue[0] if queue else None


def to_preempt(scheduler: Scheduler) -> str:
    """The running request that is preempted if the pool is exhausted."""
    if scheduler.configuration.scheduling is Scheduling.FCFS:
        return scheduler.running[-1]
    return max(scheduler.running, key=lambda name: _turn(scheduler, name))


def _turn(scheduler: Scheduler, name: str) -> tuple[int, int]:
    """What requests are ordered by where they have priorities (`Request.__lt__`); no two arrive at the same time."""
    return scheduler.requests[name].priority, list(scheduler.requests).index(name)


def preempt(scheduler: Scheduler, name: str, *, drop_output: bool = False) -> Scheduler:
    """Free all blocks of a running request and put it back in front of those that wait, or in its turn. The output of
    its chunks in flight is still delivered, before it runs again, unless it is to be dropped."""
    scheduler = _free_blocks(_with_outputs(scheduler, name), name)
    request = scheduler.requests[name]
    request = evolve(
        request,
        status=Status.WAITING,
        prefilling=False,
        placeholders=0,
        drafts=0,
        stale=request.in_flight,
        drop_stale=bool(request.in_flight) and (drop_output or (request.drop_stale and request.stale > 0)),
    )
    return evolve(
        scheduler.with_request(request),
        running=without(scheduler.running, name),
        waiting=in_turn(scheduler, (name, *scheduler.waiting)),
        dropped=(*scheduler.dropped, name),
    )


def _with_outputs(scheduler: Scheduler, name: str) -> Scheduler:
    """The auxiliary outputs of a request that loses its blocks are kept, where some are needed."""
    configuration = scheduler.configuration
    if not configuration.auxiliary_outputs or scheduler.requests[name].status is Status.ABORTED_LOADING:
        return scheduler
    kept = kept_for_later(configuration, scheduler.pool, scheduler.requests[name])
    return attrs.evolve(scheduler, outputs=scheduler.outputs | kept)


def _free_blocks(scheduler: Scheduler, name: str) -> Scheduler:
    """The request loses its blocks. While steps in flight may still write them, an asynchronous load into them is not
    ordered after these writes; then they are free only once these have executed (`_free_request_blocks`)."""
    request = scheduler.requests[name]
    if not fenced(scheduler, request):
        pool, request = free(scheduler.pool, request)
        return evolve(scheduler.with_request(request), pool=pool)
    blocks = (*reversed([block for table in request.tables for block in table]), *reversed(request.held))
    newest = max(index for index, step in enumerate(scheduler.in_flight) if step.plan.chunks)
    step = scheduler.in_flight[newest]
    held = evolve(step, freed=(*step.freed, blocks))
    in_flight = (*scheduler.in_flight[:newest], held, *scheduler.in_flight[newest + 1 :])
    _, request = free(scheduler.pool, request)
    return evolve(scheduler.with_request(request), in_flight=in_flight)


def fenced(scheduler: Scheduler, request: Request) -> bool:
    """Whether the blocks of `request`, if it loses them now, are not free yet (`_request_blocks_can_be_freed`)."""
    return fences(scheduler.configuration) and request.in_flight > 0


def fences(configuration: Configuration) -> bool:
    """Whether blocks that are lost wait for the steps in flight that may still write or copy them."""
    return configuration.connector is not None and configuration.release.freeing is Freeing.FENCED


def abort(scheduler: Scheduler, name: str) -> Scheduler:
    """The client gives up a request. If its chunks in flight never run, what they published is withdrawn under
    `Visibility.COMMITTED`."""
    rules = scheduler.configuration.release
    if rules.aborted_chunks is AbortedChunks.CANCELLED:
        if rules.visibility is Visibility.COMMITTED:
            blocks = [block for step in scheduler.in_flight for block in step.work.get(name, Work()).published]
            scheduler = evolve(scheduler, pool=scheduler.pool.unpublish(blocks))
        scheduler = evolve(scheduler, in_flight=tuple(_cancelled(step, name) for step in scheduler.in_flight))
        # No step will write its blocks any more.
        scheduler = scheduler.with_request(evolve(scheduler.requests[name], in_flight=0))
    return finish(scheduler, name)


def _cancelled(step: InFlight, name: str) -> InFlight:
    """The step in flight without the chunk of `name`, and without what was to be saved of it."""
    chunks = tuple(chunk for chunk in step.plan.chunks if chunk.request != name)
    work = {other: what for other, what in step.work.items() if other != name}
    saves = tuple(save for save in step.plan.saves if save.request != name)
    return evolve(step, plan=evolve(step.plan, chunks=chunks, saves=saves), work=work)


def finish(scheduler: Scheduler, name: str) -> Scheduler:
    """The request ends, finished or aborted. While it loads, its blocks are held until the load has ended."""
    scheduler = _with_outputs(scheduler, name)
    request = scheduler.requests[name]
    if request.status is Status.LOADING:
        aborted = evolve(request, status=Status.ABORTED_LOADING, prefilling=False)
        return evolve(scheduler.with_request(aborted), skipped=without(scheduler.skipped, name))
    if scheduler.configuration.connector is not None and request.tables:
        # The connector is shown the blocks that are still of use (`_connector_finished`).
        pool, request = retire(scheduler.configuration, scheduler.pool, request)
        scheduler = evolve(scheduler.with_request(request), pool=pool)
    scheduler = _free_blocks(scheduler, name).without_request(name)
    return evolve(scheduler, dropped=(*scheduler.dropped, name))


def end_load(scheduler: Scheduler, name: str, succeeded: bool) -> Scheduler:
    """The worker reports that the asynchronous load of a request ended; the next step promotes the request."""
    request = scheduler.requests[name]
    if request.status is Status.ABORTED_LOADING:
        return finish(scheduler, name)
    loaded = (succeeded and not request.hit_withdrawn) or (
        scheduler.configuration.release.failed_transfer is FailedTransfer.KEPT
    )
    if not loaded and scheduler.configuration.load_failure is LoadFailure.FAIL:
        return finish(scheduler.with_request(evolve(request, status=Status.LOAD_FAILED)), name)
    status = Status.LOADED if loaded else Status.LOAD_FAILED
    more = any(load.leaf.conduct.reports_unassigned and not load.assigned for load in request.loads)
    return scheduler.with_request(evolve(request, status=status, reported=more))


def second_report(scheduler: Scheduler) -> str:
    """The assertion that fails when a second leaf reports, one step after the first, that the load of a request has
    ended (`_update_from_kv_xfer_finished`); empty if none does."""
    names = [name for name, request in scheduler.requests.items() if request.reported]
    return f"{names[0]} does not wait for a load, and a second leaf reports that it has ended" if names else ""


def without(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    """A queue without one of its requests."""
    return tuple(other for other in names if other != name)
