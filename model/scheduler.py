"""The scheduler side: who runs in a step, and what becomes of requests between steps. It decides; it sees no content.

Mirrors `Scheduler.schedule`, `_preempt_request`, `_update_waiting_for_remote_kv` and `finish_requests`
(vllm/v1/core/sched/scheduler.py, async_scheduler.py), first come first served.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from model import store as storing
from model.admission import Admission, EngineAssertion, PutOff, admit, decide, load_again
from model.allocation import extend, free, publish, retire
from model.chunk import chunk_tokens
from model.configuration import Configuration, LoadFailure
from model.connector import Leaf, leaves_of
from model.geometry import column_ending_at
from model.in_flight import InFlight, Work
from model.plan import Chunk, Load, Save, StepPlan, Table
from model.policy import Policy
from model.pool import Label, Pool, PoolExhausted, new_pool
from model.release import AbortedChunks, AfterLoad, FailedTransfer, Freeing, Resumption, Visibility
from model.request import Request, Status
from model.store import Store
from model.tokens import UNKNOWN_TOKEN


@attrs.frozen
class Scheduler:
    """Scheduler state. `skipped` waits before `waiting`: requests that load or whose connector did not know yet.

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
    if not step.preempted:
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
    blocks = tuple(reversed([block for table in request.tables for block in table]))
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
        aborted = attrs.evolve(request, status=Status.ABORTED_LOADING)
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
    return scheduler.with_request(attrs.evolve(request, status=Status.LOADED if loaded else Status.LOAD_FAILED))


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
        self.loads: list[Load] = []
        self.hidden_states: frozenset[Label] = frozenset()
        """Published recurrent states that may not be hit yet."""
        if scheduler.configuration.release.visibility is Visibility.COMMITTED:
            self.hidden_states = self.hidden_states.union(*(step.states for step in scheduler.in_flight))
        self.work: dict[str, Work] = {}
        self.asked_again: list[str] = []
        self.put_off: list[str] = []
        self.preempted: list[str] = []
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
            if not self._make_room(name, request.computed + count):
                return
            extended = self.scheduler.requests[name].tables
            grown = tuple(table[len(old) :] for table, old in zip(extended, request.tables, strict=True))
            self._plan_chunk(name, count, grown, len(request.text))
            position += 1

    def _make_room(self, name: str, tokens: int) -> bool:
        """Extend the tables of `name`, preempting from the end of the line; False if it was preempted itself, or if
        preempting does not help now."""
        while True:
            request = self.scheduler.requests[name]
            try:
                pool, request = extend(self.scheduler.configuration, self.scheduler.pool, request, tokens)
            except PoolExhausted:
                victim = self.scheduler.running[-1]
                if _fenced(self.scheduler, self.scheduler.requests[victim]):
                    return False
                self.scheduler = preempt(self.scheduler, victim)
                self.preempted.append(victim)
                if victim == name:
                    return False
                continue
            self.scheduler = attrs.evolve(self.scheduler.with_request(request), pool=pool)
            return True

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
            except (PutOff, PoolExhausted) as why:
                if isinstance(why, PutOff) and why.same_step_state:
                    self.put_off.append(name)
                break
            self._dequeue(name)
            if waits:
                skipped_now.append(name)
        self.scheduler = attrs.evolve(self.scheduler, skipped=(*skipped_now, *self.scheduler.skipped))

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
        pool, request = extend(self.scheduler.configuration, self.scheduler.pool, request, request.computed + count)
        known = len(request.text)
        if self.scheduler.configuration.release.resumption is Resumption.AS_NEW:
            known = request.prompt_length
        self._run(pool, attrs.evolve(request, status=Status.RUNNING), count, known)
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
                stores,
            )
        except EngineAssertion as broken:
            self.assertion = str(broken)
            self.admissions.append(Admission(decision, (), 0))
            return True
        self.admissions.append(admission)
        self.loads += admission.loads
        if admission.chunk == 0:
            self.scheduler = attrs.evolve(self.scheduler.with_request(request), pool=pool)
            return True
        self._run(pool, request, admission.chunk, len(request.text))
        return False

    def _run(self, pool: Pool, request: Request, count: int, known: int) -> None:
        """Let the request run `count` tokens; the worker is told the first `known` tokens of its text."""
        self.scheduler = attrs.evolve(
            self.scheduler.with_request(request), pool=pool, running=(*self.scheduler.running, request.name)
        )
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
        """Every store saves, whichever leaf loaded. Recurrent states are handed over with their blocks."""
        if not self.scheduler.stores:
            return
        configuration = self.scheduler.configuration
        handed_over = [
            (label, request.tables[label.group][column_ending_at(len(label.prefix), block)])
            for label in sorted(states, key=lambda label: (label.group, len(label.prefix)))
            for block in (configuration.groups[label.group].block,)
        ]
        for leaf in self._store_leaves():
            store = self.scheduler.stores[leaf.name]
            for save in storing.saves(configuration, leaf, store, request, end, handed_over):
                self.saves.setdefault((save.leaf, save.label), save)

    def finish(self) -> Scheduled:
        plan = StepPlan(
            chunks=tuple(self.chunks),
            loads=tuple(load for load in self.loads if not load.asynchronous),
            dropped=self.scheduler.dropped,
            taken=self.scheduler.pool.taken,
            saves=tuple(self.saves.values()),
        )
        step = InFlight(plan, tuple(self.admissions), self.work)
        planned = attrs.evolve(
            self.scheduler,
            dropped=(),
            pool=attrs.evolve(self.scheduler.pool, taken=()),
            in_flight=(*self.scheduler.in_flight, step),
        )
        return Scheduled(
            scheduler=planned,
            plan=plan,
            admissions=tuple(self.admissions),
            asked_again=tuple(self.asked_again),
            put_off=tuple(self.put_off),
            preempted=tuple(self.preempted),
            assertion=self.assertion,
        )
