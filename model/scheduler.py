"""The scheduler side: who runs in a step, and what becomes of requests between steps. It decides; it sees no content.

Mirrors `Scheduler.schedule`, `_preempt_request`, `_update_waiting_for_remote_kv` and `finish_requests`
(vllm/v1/core/sched/scheduler.py, async_scheduler.py), first come first served.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from model import store as storing
from model.admission import Admission, PutOff, admit, decide, load_again
from model.allocation import extend, free, publish, retire
from model.chunk import chunk_tokens
from model.configuration import Configuration, LoadFailure
from model.connector import Leaf, leaves_of
from model.geometry import column_ending_at, columns_for
from model.in_flight import InFlight, Work
from model.plan import Chunk, Copy, Load, Save, StepPlan, Table
from model.policy import Policy
from model.pool import EngineAssertion, Label, Pool, PoolExhausted, new_pool
from model.release import (
    AbortedChunks,
    AfterLoad,
    FailedTransfer,
    FencedVictim,
    Freeing,
    Reservation,
    Resumption,
    SharedTail,
    Visibility,
    WaitingOrder,
)
from model.request import Request, Status
from model.reservation import Allotment, Need, ReservationTooLow, allotment, estimated
from model.store import Store
from model.tokens import UNKNOWN_TOKEN


@attrs.frozen
class Scheduler:
    """Scheduler state. `skipped` waits before `waiting`: requests that load or whose connector did not know yet (see
    `WaitingOrder`).

    `dropped` are requests whose blocks were freed since the last step was planned. `stores` has the scheduler side of
    each leaf that keeps objects. `in_flight` are the steps that were planned and not executed yet, the oldest first.
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

    def with_request(self, request: Request) -> Scheduler:
        """The same with one request replaced or added."""
        return attrs.evolve(self, requests={**self.requests, request.name: request})

    def with_store(self, leaf: str, store: Store) -> Scheduler:
        """The same with the scheduler side of one store replaced."""
        return attrs.evolve(self, stores={**self.stores, leaf: store})

    def without_request(self, name: str) -> Scheduler:
        """The same without the request, in any queue."""
        return attrs.evolve(
            self,
            requests={other: request for other, request in self.requests.items() if other != name},
            running=_without(self.running, name),
            waiting=_without(self.waiting, name),
            skipped=_without(self.skipped, name),
        )


@attrs.frozen
class Scheduled:
    """One planned step: the plan, what was admitted, and what could not be. `assertion`: why the engine crashed."""

    scheduler: Scheduler
    plan: StepPlan
    admissions: tuple[Admission, ...] = ()
    asked_again: tuple[str, ...] = ()
    put_off: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    allotments: tuple[Allotment, ...] = ()
    assertion: str = ""


def new_scheduler(configuration: Configuration) -> Scheduler:
    """A scheduler with an empty cache and no requests."""
    return Scheduler(configuration, new_pool(configuration.pool_blocks), stores=empty_stores(configuration))


def empty_stores(configuration: Configuration) -> dict[str, Store]:
    """A store without objects for each leaf that keeps some."""
    leaves = () if configuration.connector is None else leaves_of(configuration.connector)
    return {leaf.name: Store() for leaf in leaves if leaf.store is not None}


def schedule(scheduler: Scheduler, policy: Policy, budget: int) -> Scheduled:
    """Plan one step of at most `budget` tokens: running requests first, then, if none was preempted, waiting ones."""
    step = _Step(scheduler, policy, budget)
    step.run_running()
    if not step.preempted and not step.assertion:
        step.admit_waiting()
    return step.finish()


def preempt(scheduler: Scheduler, name: str, *, drop_output: bool = False) -> Scheduler:
    """Free all blocks of a running request and put it back in front of the waiting queue. The output of its chunks in
    flight is still delivered, before it runs again, unless it is to be dropped."""
    scheduler = _free_blocks(scheduler, name)
    request = scheduler.requests[name]
    request = attrs.evolve(
        request,
        status=Status.WAITING,
        prefilling=False,
        placeholders=0,
        stale=request.in_flight,
        drop_stale=bool(request.in_flight) and (drop_output or (request.drop_stale and request.stale > 0)),
    )
    return attrs.evolve(
        scheduler.with_request(request),
        running=_without(scheduler.running, name),
        waiting=(name, *scheduler.waiting),
        dropped=(*scheduler.dropped, name),
    )


def _free_blocks(scheduler: Scheduler, name: str) -> Scheduler:
    """The request loses its blocks. While steps in flight may still write them, an asynchronous load into them is not
    ordered after these writes; then they are free only once these have executed (`_free_request_blocks`)."""
    request = scheduler.requests[name]
    if not _fenced(scheduler, request):
        pool, request = free(scheduler.pool, request)
        return attrs.evolve(scheduler.with_request(request), pool=pool)
    blocks = (*request.held, *reversed([block for table in request.tables for block in table]))
    newest = max(index for index, step in enumerate(scheduler.in_flight) if step.plan.chunks)
    step = scheduler.in_flight[newest]
    held = attrs.evolve(step, freed=step.freed + blocks)
    in_flight = (*scheduler.in_flight[:newest], held, *scheduler.in_flight[newest + 1 :])
    _, request = free(scheduler.pool, request)
    return attrs.evolve(scheduler.with_request(request), in_flight=in_flight)


def _fenced(scheduler: Scheduler, request: Request) -> bool:
    """Whether the blocks of `request`, if it loses them now, are not free yet (`_request_blocks_can_be_freed`)."""
    configuration = scheduler.configuration
    fences = configuration.connector is not None and configuration.release.freeing is Freeing.FENCED
    return fences and request.in_flight > 0


def abort(scheduler: Scheduler, name: str) -> Scheduler:
    """The client gives up a request. If its chunks in flight never run, what they published is withdrawn under
    `Visibility.COMMITTED`."""
    rules = scheduler.configuration.release
    if rules.aborted_chunks is AbortedChunks.CANCELLED:
        if rules.visibility is Visibility.COMMITTED:
            blocks = [block for step in scheduler.in_flight for block in step.work.get(name, Work()).published]
            scheduler = attrs.evolve(scheduler, pool=scheduler.pool.unpublish(blocks))
        scheduler = attrs.evolve(scheduler, in_flight=tuple(_cancelled(step, name) for step in scheduler.in_flight))
        # No step will write its blocks any more.
        scheduler = scheduler.with_request(attrs.evolve(scheduler.requests[name], in_flight=0))
    return finish(scheduler, name)


def _cancelled(step: InFlight, name: str) -> InFlight:
    """The step in flight without the chunk of `name`, and without what was to be saved of it."""
    chunks = tuple(chunk for chunk in step.plan.chunks if chunk.request != name)
    work = {other: what for other, what in step.work.items() if other != name}
    saves = tuple(save for save in step.plan.saves if save.request != name)
    return attrs.evolve(step, plan=attrs.evolve(step.plan, chunks=chunks, saves=saves), work=work)


def finish(scheduler: Scheduler, name: str) -> Scheduler:
    """The request ends, finished or aborted. While it loads, its blocks are held until the load has ended."""
    request = scheduler.requests[name]
    if request.status is Status.LOADING:
        aborted = attrs.evolve(request, status=Status.ABORTED_LOADING, prefilling=False)
        return attrs.evolve(scheduler.with_request(aborted), skipped=_without(scheduler.skipped, name))
    if scheduler.configuration.connector is not None and request.tables:
        # The connector is shown the blocks that are still of use (`_connector_finished`).
        pool, request = retire(scheduler.configuration, scheduler.pool, request)
        scheduler = attrs.evolve(scheduler.with_request(request), pool=pool)
    scheduler = _free_blocks(scheduler, name).without_request(name)
    return attrs.evolve(scheduler, dropped=(*scheduler.dropped, name))


def end_load(scheduler: Scheduler, name: str, succeeded: bool) -> Scheduler:
    """The worker reports that the asynchronous load of a request ended; the next step promotes the request."""
    request = scheduler.requests[name]
    if request.status is Status.ABORTED_LOADING:
        return finish(scheduler, name)
    loaded = (succeeded and not request.hit_withdrawn) or (
        scheduler.configuration.release.failed_transfer is FailedTransfer.KEPT
    )
    if not loaded and scheduler.configuration.load_failure is LoadFailure.FAIL:
        return finish(scheduler.with_request(attrs.evolve(request, status=Status.LOAD_FAILED)), name)
    status = Status.LOADED if loaded else Status.LOAD_FAILED
    more = any(load.leaf.conduct.reports_unassigned and not load.assigned for load in request.loads)
    return scheduler.with_request(attrs.evolve(request, status=status, reported=more))


def second_report(scheduler: Scheduler) -> str:
    """The assertion that fails when a second leaf reports, one step after the first, that the load of a request has
    ended (`_update_from_kv_xfer_finished`); empty if none does."""
    names = [name for name, request in scheduler.requests.items() if request.reported]
    return f"{names[0]} does not wait for a load, and a second leaf reports that it has ended" if names else ""


def _without(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(other for other in names if other != name)


class _Step:
    """The step under construction; its scheduler is replaced as decisions fall."""

    def __init__(self, scheduler: Scheduler, policy: Policy, budget: int) -> None:
        self.scheduler = scheduler
        self.policy = policy
        self.budget = budget
        self.chunks: list[Chunk] = []
        self.saves: dict[tuple[str, Label], Save] = {}
        self.admissions: list[Admission] = []
        self.copies: list[Copy] = []
        self.loads: list[Load] = []
        self.hidden_states: frozenset[Label] = frozenset()
        """Published recurrent states that may not be hit yet."""
        if scheduler.configuration.release.visibility is Visibility.COMMITTED:
            self.hidden_states = self.hidden_states.union(*(step.states for step in scheduler.in_flight))
        self.work: dict[str, Work] = {}
        self.being_written: set[int] = set()
        self.asked_again: list[str] = []
        self.put_off: list[str] = []
        self.preempted: list[str] = []
        self.allotments: list[Allotment] = []
        self.assertion = ""

    def run_running(self) -> None:
        """Each running request gets its chunk; if the pool is exhausted the last one in line is preempted."""
        position = 0
        while position < len(self.scheduler.running) and self.budget > 0:
            name = self.scheduler.running[position]
            request = self.scheduler.requests[name]
            count = chunk_tokens(self.scheduler.configuration, request, request.computed, self.budget)
            if count == 0 or request.ends_in_flight:
                position += 1
                continue
            pool, request = retire(self.scheduler.configuration, self.scheduler.pool, request)
            self.scheduler = attrs.evolve(self.scheduler.with_request(request), pool=pool)
            copies = self._make_room(name, request.computed + count)
            if copies is None:
                return
            extended = self.scheduler.requests[name].tables
            grown = [table[len(old) :] for table, old in zip(extended, request.tables, strict=True)]
            for copy in copies:
                if copy.replaces:
                    # The worker only ever appends to the table of a running request.
                    grown[copy.group] = (copy.destination, *grown[copy.group])
            self._plan_chunk(name, count, tuple(grown), len(request.text))
            position += 1

    def _make_room(self, name: str, tokens: int) -> tuple[Copy, ...] | None:
        """Extend the tables of `name`, preempting from the end of the line; the copies that this takes, or None if it
        was preempted itself, or if preempting does not help now."""
        while True:
            try:
                pool, request, copies = self._extended(self.scheduler.requests[name], tokens)
            except ReservationTooLow as broken:
                self._stop(broken)
                return None
            except PoolExhausted:
                victim = self.scheduler.running[-1]
                spared = self.scheduler.configuration.release.fenced_victim is FencedVictim.SPARED
                if spared and _fenced(self.scheduler, self.scheduler.requests[victim]):
                    return None
                self.scheduler = preempt(self.scheduler, victim)
                self.preempted.append(victim)
                if victim == name:
                    return None
                continue
            self.scheduler = attrs.evolve(self.scheduler.with_request(request), pool=pool)
            self._note_copies(copies)
            return copies

    def _extended(self, request: Request, tokens: int) -> tuple[Pool, Request, tuple[Copy, ...]]:
        """Room for `tokens` tokens of a request that was admitted before. Raises PoolExhausted or ReservationTooLow."""
        configuration, before = self.scheduler.configuration, self.scheduler.pool
        expected = estimated(configuration, before, request, Need(tokens))
        try:
            pool, extended, copies = extend(configuration, before, request, request.computed, tokens)
        except PoolExhausted:
            allotment(request.name, expected, before, None)
            raise
        self.allotments += allotment(request.name, expected, before, pool)
        return pool, extended, copies

    def _stop(self, broken: EngineAssertion) -> None:
        """The engine's own check fails: nothing follows."""
        self.assertion = str(broken)
        if isinstance(broken, ReservationTooLow):
            self.allotments.append(broken.allotment)

    def _note_writes(self, request: Request, start: int, end: int) -> None:
        """The step writes the attention KV of the tokens [start, end), by a load or by running them."""
        configuration = self.scheduler.configuration
        if not configuration.fine_grained or configuration.release.shared_tail is SharedTail.AT_ONCE:
            return
        for group, table in zip(configuration.groups, request.tables, strict=True):
            if not group.recurrent:
                self.being_written.update(table[start // group.block : columns_for(end, group.block)])

    def _note_copies(self, copies: tuple[Copy, ...]) -> None:
        """Copies are made when the step runs; a recurrent state that moved to one cannot be hit before."""
        self.copies += copies
        labels = (self.scheduler.pool.labels[copy.destination] for copy in copies if not copy.replaces)
        self._hide(frozenset(label for label in labels if label is not None))

    def admit_waiting(self) -> None:
        """Skipped requests before waiting ones, in order, until one cannot be admitted."""
        skipped_now: list[str] = []
        while (self.scheduler.skipped or self.scheduler.waiting) and self.budget > 0 and not self.assertion:
            name = (*self.scheduler.skipped, *self.scheduler.waiting)[0]
            if self.scheduler.requests[name].status is Status.LOADING:
                self._dequeue(name)
                skipped_now.append(name)
                continue
            self._promote(name)
            request = self.scheduler.requests[name]
            if request.stale and not request.drop_stale:
                # Its output in flight is still to be delivered: run now, it would be sampled twice.
                self._dequeue(name)
                skipped_now.append(name)
                continue
            try:
                waits = self._resume_loaded(name) if self.scheduler.requests[name].tables else self._admit_new(name)
            except ReservationTooLow as broken:
                self._stop(broken)
                break
            except (PutOff, PoolExhausted) as why:
                if isinstance(why, PutOff) and why.same_step_state:
                    self.put_off.append(name)
                break
            self._dequeue(name)
            if waits:
                skipped_now.append(name)
        skipped, waiting = skipped_now, []
        if self.scheduler.configuration.release.waiting_order is WaitingOrder.HOLDERS_FIRST:
            holds = {name: bool(self.scheduler.requests[name].tables) for name in skipped_now}
            skipped = [name for name in skipped_now if holds[name]]
            waiting = [name for name in skipped_now if not holds[name]]
        self.scheduler = attrs.evolve(
            self.scheduler,
            skipped=(*skipped, *self.scheduler.skipped),
            waiting=(*waiting, *self.scheduler.waiting),
        )

    def _dequeue(self, name: str) -> None:
        self.scheduler = attrs.evolve(
            self.scheduler,
            waiting=_without(self.scheduler.waiting, name),
            skipped=_without(self.scheduler.skipped, name),
        )

    def _promote(self, name: str) -> None:
        """A request whose load ended becomes schedulable: published up to R, or at 0 again.

        Mirrors `_update_waiting_for_remote_kv`.
        """
        request = self.scheduler.requests[name]
        pool = self.scheduler.pool
        if request.status is Status.LOADED:
            pool, request, states = publish(self.scheduler.configuration, pool, request, request.computed)
            self._hide(states)
            self._plan_saves(request, request.computed, states)
            # On a full hit the last token is run again, for logits.
            request = attrs.evolve(request, computed=min(request.computed, len(request.tokens) - 1))
        elif request.status is Status.LOAD_FAILED:
            pool, request = free(pool, request)
        else:
            return
        request = attrs.evolve(request, status=Status.WAITING, loads=(), hit_withdrawn=False)
        self.scheduler = attrs.evolve(self.scheduler.with_request(request), pool=pool)

    def _resume_loaded(self, name: str) -> bool:
        """Run a request whose tokens were loaded; True if it has to wait, for another load."""
        request = self.scheduler.requests[name]
        if self.scheduler.configuration.release.after_load is AfterLoad.ASKED_AGAIN:
            pool, request, loads = load_again(
                self.scheduler.configuration, self.policy, self.scheduler.pool, request, self.scheduler.stores
            )
            self.loads += loads
            self.scheduler = attrs.evolve(self.scheduler.with_request(request), pool=pool)
            if request.status is Status.LOADING:
                return True
        count = chunk_tokens(self.scheduler.configuration, request, request.computed, self.budget)
        if count == 0:
            raise PutOff(same_step_state=False)
        pool, request, copies = self._extended(request, request.computed + count)
        known = len(request.text)
        if self.scheduler.configuration.release.resumption is Resumption.AS_NEW:
            known = request.prompt_length
        self._run(pool, attrs.evolve(request, status=Status.RUNNING), count, copies, known)
        return False

    def _admit_new(self, name: str) -> bool:
        """Admit a request with nothing computed; True if it has to wait, for an answer or for its load."""
        configuration = self.scheduler.configuration
        stores = self.scheduler.stores
        decision, request = decide(
            configuration, self.policy, self.scheduler.pool, self.scheduler.requests[name], stores
        )
        self.scheduler = self.scheduler.with_request(request)
        if decision is None:
            self.asked_again.append(name)
            return True
        try:
            pool, request, admission = admit(
                configuration,
                self.policy,
                self.scheduler.pool,
                request,
                decision,
                self.budget,
                self.hidden_states,
                self.being_written,
                self.scheduler.requests.values(),
                stores,
            )
        except EngineAssertion as broken:
            self._stop(broken)
            self.admissions.append(Admission(decision, (), 0))
            return True
        self.admissions.append(admission)
        self.allotments += admission.allotments
        self.loads += admission.loads
        if admission.chunk == 0:
            request = attrs.evolve(request, prefilling=self._reserves)
            self.scheduler = attrs.evolve(self.scheduler.with_request(request), pool=pool)
            self._note_copies(admission.copies)
            return True
        if admission.loads:
            self._note_writes(request, decision.local, decision.resume)
        self._run(pool, request, admission.chunk, admission.copies, len(request.text))
        return False

    @property
    def _reserves(self) -> bool:
        """Whether blocks are kept free for prefills that have begun."""
        return self.scheduler.configuration.release.reservation is not Reservation.BY_TAKING

    def _run(self, pool: Pool, request: Request, count: int, copies: tuple[Copy, ...], known: int) -> None:
        """Let the request run `count` tokens; the worker is told the first `known` tokens of its text."""
        if count < request.uncomputed:
            request = attrs.evolve(request, prefilling=self._reserves)
        self.scheduler = attrs.evolve(
            self.scheduler.with_request(request), pool=pool, running=(*self.scheduler.running, request.name)
        )
        self._note_copies(copies)
        self._plan_chunk(request.name, count, request.tables, known)

    def _plan_chunk(self, name: str, count: int, new_blocks: tuple[Table, ...], known: int) -> None:
        """Plan the chunk and publish its blocks at once, before they are written (vLLM publishes in `schedule`)."""
        before = self.scheduler.requests[name]
        pool, request, states = publish(
            self.scheduler.configuration, self.scheduler.pool, before, before.computed + count
        )
        self._hide(states)
        end = request.computed + count
        chunk = Chunk(
            request=name,
            prefix=(request.text[:known] + (UNKNOWN_TOKEN,) * end)[:end],
            computed=request.computed,
            count=count,
            starts=not request.started,
            new_blocks=new_blocks,
        )
        self.chunks.append(chunk)
        self._note_writes(request, chunk.computed, chunk.end)
        self._tell_stores(chunk)
        self._plan_saves(request, chunk.end, states)
        self.budget -= count
        request = attrs.evolve(
            request, computed=request.computed + count, in_flight=request.in_flight + count, started=True
        )
        labelled = zip(self.scheduler.pool.labels, pool.labels, strict=True)
        blocks = tuple(block for block, (old, new) in enumerate(labelled) if old != new)
        self.work[name] = Work(request.tables, blocks, states, samples=request.computed >= len(request.tokens))
        if self.scheduler.configuration.steps_in_flight > 1 and request.computed >= request.scheduled_length:
            request = attrs.evolve(request, placeholders=request.placeholders + 1)
        self.scheduler = attrs.evolve(self.scheduler.with_request(request), pool=pool)

    def _hide(self, states: frozenset[Label]) -> None:
        if self.scheduler.configuration.release.visibility is not Visibility.SAME_STEP:
            self.hidden_states |= states

    def _tell_stores(self, chunk: Chunk) -> None:
        for leaf in self._store_leaves():
            assert leaf.store is not None
            store = storing.seen(self.scheduler.stores[leaf.name], leaf.store, chunk)
            self.scheduler = self.scheduler.with_store(leaf.name, store)

    def _store_leaves(self) -> Iterator[Leaf]:
        connector = self.scheduler.configuration.connector
        if self.scheduler.stores and connector is not None:
            yield from (leaf for leaf in leaves_of(connector) if leaf.store is not None)

    def _plan_saves(self, request: Request, end: int, states: frozenset[Label]) -> None:
        """Every store saves, whichever leaf loaded. Recurrent states are handed over with their blocks, that of a
        partial tail not before it has a copy that stays."""
        if not self.scheduler.stores:
            return
        configuration = self.scheduler.configuration
        handed_over = [
            (label, request.tables[label.group][column_ending_at(len(label.prefix), block)])
            for label in sorted(states, key=lambda label: (label.group, len(label.prefix)))
            for block in (configuration.groups[label.group].block,)
            if len(label.prefix) % block == 0
        ]
        for copy in self.copies:
            label = self.scheduler.pool.labels[copy.destination]
            if not copy.replaces and label is not None and label.prefix == request.tokens[: len(label.prefix)]:
                handed_over.append((label, copy.destination))
        planned = {(save.leaf, save.label) for step in self.scheduler.in_flight for save in step.plan.saves}
        for leaf in self._store_leaves():
            store = self.scheduler.stores[leaf.name]
            for save in storing.saves(configuration, leaf, store, request, end, handed_over):
                if (save.leaf, save.label) not in planned:
                    self.saves.setdefault((save.leaf, save.label), save)

    def _sources(self) -> list[int]:
        """Blocks of the step's saves that are referenced from now on, before what has read them last lets go."""
        rules = {leaf.name: leaf.store for leaf in self._store_leaves()}
        return [
            save.block
            for save in self.saves.values()
            for store in (rules[save.leaf],)
            if store and store.references_sources
        ]

    def finish(self) -> Scheduled:
        # Group after group, as the managers hand them over; what was held for the copies is free again.
        for chunk in self.chunks:
            request = self.scheduler.requests[chunk.request]
            if request.prefilling and not request.uncomputed:
                self.scheduler = self.scheduler.with_request(attrs.evolve(request, prefilling=False))
        copies = sorted(self.copies, key=lambda copy: copy.group)
        pool = self.scheduler.pool.release(block for copy in copies for block in (copy.source, copy.destination))
        plan = StepPlan(
            chunks=tuple(self.chunks),
            loads=tuple(load for load in self.loads if not load.asynchronous),
            dropped=self.scheduler.dropped,
            taken=pool.taken,
            copies=tuple(copies),
            saves=tuple(self.saves.values()),
        )
        pool = pool.touch(self._sources())
        step = InFlight(plan, tuple(self.admissions), self.work)
        planned = attrs.evolve(
            self.scheduler,
            dropped=(),
            pool=attrs.evolve(pool, taken=()),
            in_flight=(*self.scheduler.in_flight, step),
        )
        return Scheduled(
            scheduler=planned,
            plan=plan,
            admissions=tuple(self.admissions),
            asked_again=tuple(self.asked_again),
            put_off=tuple(self.put_off),
            preempted=tuple(self.preempted),
            allotments=tuple(self.allotments),
            assertion=self.assertion,
        )
