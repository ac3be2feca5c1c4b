"""One step of the scheduler under construction: who runs, who is admitted, what the worker is told.

Mirrors `Scheduler.schedule` and `_update_waiting_for_remote_kv` (vllm/v1/core/sched/scheduler.py, async_scheduler.py).
"""

from __future__ import annotations

import attrs

from model import saving
from model.adjustment import outputs_of, rerun_tokens
from model.admission import Admission, PutOff, admit, decide, load_again
from model.allocation import extend, free, publish, retire
from model.chunk import chunk_tokens, first_chunk
from model.configuration import Scheduling
from model.geometry import columns_for
from model.in_flight import InFlight, Work
from model.plan import Chunk, Copy, Load, Save, StepPlan, Table
from model.policy import Policy
from model.pool import EngineAssertion, Label, Pool, PoolExhausted
from model.request import Request, Status
from model.reservation import Allotment, Need, Others, ReservationTooLow, allotment, estimated
from model.rules.loads import AfterLoad
from model.rules.scheduling import (
    FencedVictim,
    NextRunning,
    PreemptedChunk,
    Reservation,
    Resumption,
    Visibility,
    WaitingOrder,
)
from model.rules.states import SharedTail
from model.scheduler import Scheduler, fenced, fences, in_turn, next_in_turn, preempt, to_preempt, without
from model.speculation import Batch
from model.tokens import UNKNOWN_TOKEN
from model.values import evolve


@attrs.frozen
class Scheduled:
    """One planned step: the plan, what was admitted, and what could not be. `taken_out` are those of the preempted
    whose chunk was in the step already. `assertion`: why the engine crashed."""

    scheduler: Scheduler
    plan: StepPlan
    admissions: tuple[Admission, ...] = ()
    asked_again: tuple[str, ...] = ()
    put_off: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    taken_out: tuple[str, ...] = ()
    allotments: tuple[Allotment, ...] = ()
    assertion: str = ""


def schedule(scheduler: Scheduler, policy: Policy, budget: int) -> Scheduled:
    """Plan one step of at most `budget` tokens: running requests first, then, if none was preempted, waiting ones."""
    step = Step(scheduler, policy, budget)
    step.run_running()
    if not step.preempted and not step.assertion:
        step.admit_waiting()
    return step.finish()


class Step:
    """The step under construction; its scheduler is replaced as decisions fall."""

    def __init__(self, scheduler: Scheduler, policy: Policy, budget: int) -> None:
        self.scheduler = scheduler
        self.policy = policy
        self.budget = budget
        self.chunks: list[Chunk] = []
        self.saves: list[Save] = []
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
        self.taken_out: list[str] = []
        self.allotments: list[Allotment] = []
        self.assertion = ""
        self.position = 0
        """Place of the running request whose turn it is."""
        self.ran = False
        self.prefills = False
        """Whether running requests were scheduled, and prefills among them."""

    def run_running(self) -> None:
        """Each running request gets its chunk; if the pool is exhausted the last one in turn is preempted."""
        while self.position < len(self.scheduler.running) and self.budget > 0:
            name = self.scheduler.running[self.position]
            request = self.scheduler.requests[name]
            count = chunk_tokens(self.scheduler.configuration, request, request.computed, self.budget)
            if count == 0 or request.ends_in_flight:
                self.position += 1
                continue
            pool, request = retire(self.scheduler.configuration, self.scheduler.pool, request)
            self.scheduler = evolve(self.scheduler.with_request(request), pool=pool)
            copies = self._make_room(name, request.computed + count)
            if copies is None:
                if self._goes_on_without(name):
                    continue
                return
            self.ran, self.prefills = True, self.prefills or not request.drafts
            extended = self.scheduler.requests[name].tables
            grown = [table[len(old) :] for table, old in zip(extended, request.tables, strict=True)]
            for copy in copies:
                if copy.replaces:
                    # The worker only ever appends to the table of a running request.
                    grown[copy.group] = (copy.destination, *grown[copy.group])
            self._plan_chunk(name, count, tuple(grown), len(request.text))
            self.position += 1

    def _goes_on_without(self, name: str) -> bool:
        """Whether others still run if `name` got no room: those that come after it have a better priority."""
        configuration = self.scheduler.configuration
        by_priority = configuration.scheduling is Scheduling.PRIORITY and name in self.preempted
        return by_priority and configuration.release.next_running is NextRunning.AFTER_ITSELF_TOO

    def _make_room(self, name: str, tokens: int) -> tuple[Copy, ...] | None:
        """Extend the tables of `name`, preempting whoever is last in turn; the copies that this takes, or None if it
        was preempted itself, or if preempting does not help now."""
        while True:
            try:
                pool, request, copies = self._extended(self.scheduler.requests[name], tokens)
            except EngineAssertion as broken:
                self._stop(broken)
                return None
            except PoolExhausted:
                victim = to_preempt(self.scheduler)
                spared = self.scheduler.configuration.release.fenced_victim is FencedVictim.SPARED
                if spared and self._fenced(victim):
                    return None
                self._preempt(victim)
                if victim == name:
                    return None
                continue
            self.scheduler = evolve(self.scheduler.with_request(request), pool=pool)
            self._note_copies(copies)
            return copies

    def _fenced(self, name: str) -> bool:
        """Whether steps in flight keep the blocks of a request; the step under construction does not."""
        request = self.scheduler.requests[name]
        own = sum(chunk.count for chunk in self.chunks if chunk.request == name)
        return fenced(self.scheduler, evolve(request, in_flight=request.in_flight - own))

    def _preempt(self, name: str) -> None:
        """A running request loses its blocks, and its chunk if it is in the step already."""
        stood_before = self.scheduler.running.index(name) < self.position
        passes_over = self.scheduler.configuration.release.next_running is NextRunning.MAY_PASS_OVER_ONE
        if stood_before and (name in self.work or not passes_over):
            self.position -= 1
        if name in self.work:
            self._take_out(name)
        self.scheduler = preempt(self.scheduler, name)
        self.preempted.append(name)

    def _take_out(self, name: str) -> None:
        """No step runs the planned chunk (`if preempted_req in scheduled_running_reqs`). Its copies are made."""
        (chunk,) = (chunk for chunk in self.chunks if chunk.request == name)
        work = self.work.pop(name)
        self.chunks.remove(chunk)
        self.saves = [save for save in self.saves if save.request != name]
        self.budget += chunk.count
        self.taken_out.append(name)
        request, pool = self.scheduler.requests[name], self.scheduler.pool
        request = evolve(request, computed=chunk.computed, in_flight=request.in_flight - chunk.count)
        if self.scheduler.configuration.release.preempted_chunk is PreemptedChunk.WITHDRAWN:
            pool = pool.unpublish(work.published)
        self.scheduler = evolve(self.scheduler.with_request(request), pool=pool)

    def _extended(self, request: Request, tokens: int) -> tuple[Pool, Request, tuple[Copy, ...]]:
        """Room for `tokens` tokens of a request that was admitted before. Raises PoolExhausted or ReservationTooLow."""
        configuration, before = self.scheduler.configuration, self.scheduler.pool
        ahead = configuration.lookahead
        expected = estimated(configuration, before, request, Need(tokens, ahead=ahead))
        try:
            pool, extended, copies = extend(configuration, before, request, request.computed, tokens, ahead)
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
        while (name := next_in_turn(self.scheduler)) and self.budget > 0 and not self.assertion:
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
            except EngineAssertion as broken:
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
        self.scheduler = evolve(
            self.scheduler,
            skipped=in_turn(self.scheduler, (*skipped, *self.scheduler.skipped)),
            waiting=in_turn(self.scheduler, (*waiting, *self.scheduler.waiting)),
        )

    def _dequeue(self, name: str) -> None:
        self.scheduler = evolve(
            self.scheduler,
            waiting=without(self.scheduler.waiting, name),
            skipped=without(self.scheduler.skipped, name),
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
            self._plan_saves(pool, request, request.computed, states)
            rerun = rerun_tokens(self.scheduler.configuration, request.computed)
            if rerun:
                request = attrs.evolve(request, computed=request.computed - rerun, rerun_to=request.computed)
            # On a full hit the last token is run again, for logits.
            request = evolve(request, computed=min(request.computed, len(request.tokens) - 1))
        elif request.status is Status.LOAD_FAILED:
            pool, request = free(pool, request)
        else:
            return
        request = evolve(request, status=Status.WAITING, loads=(), hit_withdrawn=False)
        self.scheduler = evolve(self.scheduler.with_request(request), pool=pool)

    def _resume_loaded(self, name: str) -> bool:
        """Run a request whose tokens were loaded; True if it has to wait, for another load."""
        request = self.scheduler.requests[name]
        if self.scheduler.configuration.release.after_load is AfterLoad.ASKED_AGAIN:
            pool, request, loads = load_again(
                self.scheduler.configuration, self.policy, self.scheduler.pool, request, self.scheduler.stores
            )
            self.loads += loads
            self.scheduler = evolve(self.scheduler.with_request(request), pool=pool)
            if request.status is Status.LOADING:
                return True
        count, padding = first_chunk(self.scheduler.configuration, request, request.computed, self._batch)
        if count == 0:
            raise PutOff(same_step_state=False)
        pool, request, copies = self._extended(request, max(request.rerun_to, request.computed + count))
        known = len(request.text)
        if self.scheduler.configuration.release.resumption is Resumption.AS_NEW:
            known = request.prompt_length
        self._run(pool, evolve(request, status=Status.RUNNING), count, copies, known, padding)
        return False

    def _admit_new(self, name: str) -> bool:
        """Admit a request with nothing computed; True if it has to wait, for an answer or for its load."""
        configuration = self.scheduler.configuration
        stores = self.scheduler.stores
        request = self.scheduler.requests[name]
        outputs = outputs_of(configuration, self.scheduler.pool, self.scheduler.outputs, request)
        decision, request = decide(configuration, self.policy, self.scheduler.pool, request, stores, outputs)
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
                self._batch,
                self.hidden_states,
                self.being_written,
                self._others,
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
            request = evolve(request, prefilling=self._reserves)
            self.scheduler = evolve(self.scheduler.with_request(request), pool=pool)
            self._note_copies(admission.copies)
            return True
        if admission.loads:
            self._note_writes(request, decision.local, decision.resume)
        self._run(pool, request, admission.chunk, admission.copies, len(request.text), admission.padding)
        return False

    @property
    def _batch(self) -> Batch:
        """What the step can still do for a request that waits."""
        return Batch(self.budget, runs=self.ran, prefills=self.prefills)

    @property
    def _others(self) -> Others:
        """All requests, each with how far it was computed when the step began (`_request_remaining_blocks`)."""
        ran = {chunk.request: chunk.count for chunk in self.chunks}
        return [(each, each.computed - ran.get(name, 0)) for name, each in self.scheduler.requests.items()]

    @property
    def _reserves(self) -> bool:
        """Whether blocks are kept free for prefills that have begun."""
        return self.scheduler.configuration.release.reservation is not Reservation.BY_TAKING

    def _run(
        self, pool: Pool, request: Request, count: int, copies: tuple[Copy, ...], known: int, padding: int
    ) -> None:
        """Let the request run `count` tokens, `padding` of them without drafts; the worker is told the first `known`
        tokens of its text."""
        if count < request.uncomputed:
            request = evolve(request, prefilling=self._reserves)
        self.scheduler = evolve(
            self.scheduler.with_request(request), pool=pool, running=(*self.scheduler.running, request.name)
        )
        self._note_copies(copies)
        self._plan_chunk(request.name, count, request.tables, known, padding)

    def _plan_chunk(self, name: str, count: int, new_blocks: tuple[Table, ...], known: int, padding: int = 0) -> None:
        """Plan the chunk and publish its blocks at once, before they are written (vLLM publishes in `schedule`)."""
        before = self.scheduler.requests[name]
        pool, request, states = publish(
            self.scheduler.configuration, self.scheduler.pool, before, max(before.rerun_to, before.computed + count)
        )
        self._hide(states)
        end = request.computed + count
        drafts = max(0, end - len(request.tokens) - request.placeholders)
        chunk = Chunk(
            request=name,
            prefix=(request.text[:known] + (UNKNOWN_TOKEN,) * end)[:end],
            computed=request.computed,
            count=count,
            starts=not request.started,
            new_blocks=new_blocks,
            drafts=drafts,
            rejected=min(drafts, padding),
            rerun=max(0, min(count, request.rerun_to - request.computed)),
            reserves=request.checkpoint is not None,
        )
        self.chunks.append(chunk)
        self._note_writes(request, chunk.computed, chunk.end)
        self.scheduler = saving.tell(self.scheduler, chunk)
        self._plan_saves(pool, request, chunk.end, states)
        self.budget -= count
        request = evolve(
            request, computed=request.computed + count, in_flight=request.in_flight + count, started=True, drafts=0
        )
        labelled = zip(self.scheduler.pool.labels, pool.labels, strict=True)
        blocks = tuple(block for block, (old, new) in enumerate(labelled) if old != new)
        samples = request.computed >= len(request.tokens)
        self.work[name] = Work(request.tables, blocks, states, samples, padding)
        if self.scheduler.configuration.steps_in_flight > 1 and request.computed >= request.scheduled_length:
            # What it samples, with all drafts, is taken for known, and for the next step there are drafts already.
            placeholders = request.placeholders + 1 + max(drafts, padding)
            request = evolve(request, placeholders=placeholders, drafts=self.scheduler.configuration.drafts)
        self.scheduler = evolve(self.scheduler.with_request(request), pool=pool)

    def _hide(self, states: frozenset[Label]) -> None:
        if self.scheduler.configuration.release.visibility is not Visibility.SAME_STEP:
            self.hidden_states |= states

    def _plan_saves(self, pool: Pool, request: Request, end: int, states: frozenset[Label]) -> None:
        self.saves += saving.planned(self.scheduler, pool, request, end, states, self.copies)

    def finish(self) -> Scheduled:
        for chunk in self.chunks:
            request = self.scheduler.requests[chunk.request]
            if request.prefilling and not request.uncomputed:
                self.scheduler = self.scheduler.with_request(evolve(request, prefilling=False))
        # Group after group, as the managers hand them over.
        copies = sorted(self.copies, key=lambda copy: copy.group)
        held = tuple(block for copy in copies for block in (copy.source, copy.destination))
        pool, freed, copied = self._after_copies(held)
        saves: dict[tuple[str, Label], Save] = {}
        for save in self.saves:
            saves.setdefault((save.leaf, save.label), save)
            if save.counted != save.listed:
                self._stop(EngineAssertion(f"{save.counted} blocks are counted for a save, and {save.listed} listed"))
        plan = StepPlan(
            chunks=tuple(self.chunks),
            loads=tuple(load for load in self.loads if not load.asynchronous),
            dropped=self.scheduler.dropped,
            taken=pool.taken,
            copies=tuple(copies),
            saves=tuple(saves.values()),
        )
        pool = pool.touch(block for save in saves.values() for block in save.held)
        step = InFlight(plan, tuple(self.admissions), self.work, freed)
        planned = evolve(
            self.scheduler,
            dropped=(),
            copied=copied,
            pool=evolve(pool, taken=()),
            in_flight=(*self.scheduler.in_flight, step),
        )
        return Scheduled(
            scheduler=planned,
            plan=plan,
            admissions=tuple(self.admissions),
            asked_again=tuple(self.asked_again),
            put_off=tuple(self.put_off),
            preempted=tuple(self.preempted),
            taken_out=tuple(self.taken_out),
            allotments=tuple(self.allotments),
            assertion=self.assertion,
        )

    def _after_copies(self, held: Table) -> tuple[Pool, tuple[Table, ...], tuple[Table, ...]]:
        """What was held for the copies is free again, where blocks wait for steps in flight only once the first step
        that runs something has executed (`_free_cow_retained_blocks`): the pool, what waits for this step, and what
        waits for a later one."""
        configuration = self.scheduler.configuration
        if configuration.steps_in_flight == 1 or not fences(configuration):
            return self.scheduler.pool.release(held), (), ()
        waiting = (*self.scheduler.copied, held)
        return (self.scheduler.pool, waiting, ()) if self.chunks else (self.scheduler.pool, (), waiting)
