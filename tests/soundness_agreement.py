"""Follows a run of the model with the encoded transitions of the cache proof, one by one, on concrete values.

Every call of the model that changes block tables, the pool or memory becomes transitions of the encoding. Their guards
have to hold for all blocks, entries and requests of the run, and after each action both sides have to agree: on
references, hashes, tables and progress exactly, on content in that whatever the encoding says a block shows, it holds.

A request that loses its blocks while a step in flight may still write them keeps them until then; in the encoding it
goes on as an element of its own, and what runs again under its name is another one.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

import model.admission
import model.allocation
import model.output
import model.recovery
import model.saving
import model.scheduler
import model.step
import model.system
import model.worker
from model.actions import Action, Drain, Evict, Execute, RejectedDrafts, Reset, Schedule, Step
from model.configuration import Configuration, StateMode
from model.errors import IllegalAction
from model.geometry import column_ending_at, columns_for
from model.internal_checkpoint import stored_by
from model.lookup import tables_at
from model.plan import Chunk, Save, StepPlan
from model.policy import Policy
from model.pool import NULL_BLOCK, Label, Pool
from model.request import Request, Status
from model.saving import store_leaves
from model.scheduler import Scheduler
from model.speculation import copy_back, draft_states, verified
from model.system import System, apply, initial
from model.trace import Trace
from model.worker import Worker
from solver.soundness.invariants import INVARIANTS
from solver.soundness.running import ChunkChoice, forward
from solver.soundness.state import IDLE, LOADED, LOADING, RUNNING, cardinality_laws
from solver.soundness.stepping import Executed, Loss, commit_step, end_step, lose_step
from solver.soundness.terms import BLOCK, ENTRY
from solver.soundness.vocabulary import Entry, laws_of
from tests.soundness_follower import ENCODING, Disagreement, Follower, OnInts, promised

STATUS = {Status.RUNNING: RUNNING, Status.LOADING: LOADING, Status.LOADED: LOADED, Status.LOAD_FAILED: LOADED}

EXECUTE = model.worker.execute

DEEPEST = 20_000
"""Calls within calls: what a block shows is asked of all transitions so far."""


@attrs.define(eq=False)
class Planned:
    """A step in flight: what it writes and reads, what copies have held until it has run, what blocks show at its end,
    and who is freed then."""

    writes: frozenset[int]
    reads: frozenset[int]
    copied: Counter[int]
    shows: Callable[[int, int], bool]
    freed: list[int] = attrs.Factory(list)

    @property
    def as_executed(self) -> Executed:
        return Executed(
            writes=lambda block: block in self.writes,
            reads=lambda block: block in self.reads,
            copied=lambda block: self.copied[block],
            between=self.shows,
        )


@attrs.frozen
class Followed:
    """How often each transition was taken in a run, and from which function of the model."""

    taken: Counter[str]
    mapped: Counter[tuple[str, str]]


class Recorder:
    """Turns what the model does into transitions. `mapped` counts them by the function of the model."""

    def __init__(self, configuration: Configuration) -> None:
        self.follower = Follower(configuration)
        self.planned: list[Planned] = []
        self.executing: Planned | None = None
        self.worker: Worker | None = None
        self.ending = False
        self.gone_back: list[tuple[int, Planned | None]] | None = None
        self.flushed: set[Save] = set()
        self.mapped: Counter[tuple[str, str]] = Counter()
        self.rejected: tuple[RejectedDrafts, ...] = ()

    # What the functions of the model do, by name; each is given the arguments and the result.

    def retire(self, arguments: tuple[Any, ...], result: Any) -> None:
        before, after = _request(arguments), _request(result)
        for group, column, block in _gone(before, after):
            self.follower.do("retire", self.follower.entry(before, group, column), block)

    def extend(self, arguments: tuple[Any, ...], result: Any) -> None:
        before, after = _request(arguments), _request(result)
        for group in range(len(after.tables)):
            copies = {copy.destination: copy for copy in result[2] if copy.group == group}
            for copy in copies.values():
                if not copy.replaces:
                    entry = self.follower.entry(after, group, after.tables[group].index(copy.source))
                    self.follower.do("copy for producer", entry, copy.source, copy.destination)
            for index, column, block in _come(before, after):
                if index == group:
                    entry = self.follower.entry(after, group, column)
                    if block in before.tables[group]:
                        scratch = self.follower.entry(before, group, before.tables[group].index(block))
                        self.follower.do("relocate", scratch, entry)
                        continue
                    self.follower.do("allocate", entry, block)
                    if block in copies:
                        self.follower.do("copy for reader", entry, copies[block].source, block, arguments[3])

    def decide(self, arguments: tuple[Any, ...], result: Any) -> None:
        """The blocks that the lookup finds for the local hit."""
        decision, request = result
        if decision is None:
            return
        pool = next(argument for argument in arguments if isinstance(argument, Pool))
        tables, _ = tables_at(self.follower.universe.configuration, decision.lookup, decision.first_local)
        for group, table in enumerate(tables):
            for column, block in enumerate(table):
                if block != NULL_BLOCK:
                    entry = self.follower.entry(request, group, column)
                    self._look_up(pool, request, entry, block, decision.first_local)

    def _look_up(self, pool: Pool, request: Request, entry: Entry, block: int, local: int) -> int:
        """Look up a block of a local hit of `local` tokens; the boundary for which it is cached, 0 if it is no hit."""
        state = self.follower.state
        boundary = self._hit(pool, request, entry, block, local)
        if boundary and (state.found(entry), state.found_at(entry)) != (block, boundary):
            self.follower.do("look up", entry, block, boundary)
        return boundary

    def _found(self, request: Request) -> list[Entry]:
        """Entries of the request for which something was found."""
        own, state = self.follower.number(request), self.follower.state
        entries = self.follower.universe.elements(ENTRY)
        return [entry for entry in entries if entry.request == own and state.found(entry) != NULL_BLOCK]

    def adopt(self, arguments: tuple[Any, ...], result: Any) -> None:
        before, after = _request(arguments), _request(result)
        pool, local = next(argument for argument in arguments if isinstance(argument, Pool)), arguments[4]
        hits: list[tuple[Entry, int]] = []
        taken: list[Entry] = []
        blocks: dict[tuple[int, int], int] = {}
        for group, column, block in _come(before, after):
            entry = self.follower.entry(after, group, column)
            boundary = self._look_up(pool, before, entry, block, local)
            blocks[group, column] = block
            if not boundary:
                taken.append(entry)
            elif self.follower.words.column_end(entry) <= local:
                hits.append((entry, block))
            # What the hit ends inside stays found until it is copied; vLLM references it meanwhile.
        for entry in self._found(before):
            if self.follower.state.found(entry) != blocks.get((entry.group, entry.column)):
                self.follower.do("drop lookup", entry)
        for entry, block in hits:
            self.follower.do("touch", entry, block)
        for entry in taken:
            self.follower.do("allocate", entry, blocks[entry.group, entry.column])
        for entry in taken:
            self.follower.do("await load", entry)

    def _hit(self, pool: Pool, request: Request, entry: Entry, block: int, local: int) -> int:
        """The boundary in the entry's column that the block is cached for, at `local` or at the column's end if that is
        before, of attention also beyond it; 0: it is no hit."""
        words = self.follower.words
        least, most = min(local, words.column_end(entry)), words.column_end(entry)
        if least <= words.column_start(entry):
            return 0
        cached = [
            len(label.prefix)
            for label in pool.labels_of(block)
            if label.group == entry.group
            and least <= len(label.prefix) <= (least if words.recurrent(entry.group) else most)
            and label.prefix == request.tokens[: len(label.prefix)]
        ]
        return min(cached, default=0)

    def publish(self, arguments: tuple[Any, ...], result: Any) -> None:
        """In a step that is planned it comes with the chunk; else it is of what was run or loaded before."""
        request, follower = _request(arguments), self.follower
        if request.status is Status.RUNNING and self.executing is None:
            self._chunk(request, arguments[3])
        before, after = (next(part for part in parts if isinstance(part, Pool)) for parts in (arguments, result))
        for (group, column), block in _cells(request).items():
            entry, labels, old = follower.entry(request, group, column), after.labels_of(block), before.labels_of(block)
            # To publish a block in full drops its tail; the model restores it as an alias.
            filled = any(label not in old and self._is_whole(label) for label in labels)
            for label in labels if filled else [label for label in labels if label not in old]:
                boundary = len(label.prefix)
                if follower.state.checkpoint(entry):
                    follower.do("publish checkpoint", entry, block)
                elif boundary == follower.words.column_end(entry):
                    follower.do("publish full", entry, block)
                else:
                    follower.do("publish tail", entry, block, boundary)

    def _chunk(self, request: Request, end: int) -> None:
        follower = self.follower
        if follower.status(request) == IDLE:
            for entry in follower.awaiting(request):
                block = follower.state.table(entry)
                follower.do("load in step", entry, block, request.computed)
            follower.do("start", follower.number(request), request.computed)
        if follower.status(request) == LOADED:
            follower.do("start after load", follower.number(request))
        written: dict[int, tuple[int, int]] = {}
        configuration = follower.universe.configuration
        chunk = self._with_drafts(request, end)
        end = chunk.end
        for group, table in enumerate(request.tables):
            width = configuration.groups[group].block
            one_state = configuration.groups[group].recurrent and configuration.state_mode is StateMode.ALIGN
            columns = {*range(chunk.computed // width, columns_for(end, width))}
            if one_state:
                columns = {column for _, column in draft_states(chunk, width)}
                saved = copy_back(chunk, width)
                columns |= {saved.destination} if saved is not None else set()
            written |= {table[column]: (group, column) for column in columns}
        stored = stored_by(configuration, chunk)
        checkpoints = {
            (group, stored.column)
            for group, table in enumerate(request.tables)
            if stored is not None and configuration.groups[group].recurrent and table[stored.column] != NULL_BLOCK
        }
        written |= {request.tables[group][column]: (group, column) for group, column in checkpoints}
        choice = ChunkChoice(
            written=lambda block: block in written,
            written_in=lambda block: written.get(block, (0, 0)),
            stored=lambda entry: (entry.group, entry.column) in checkpoints,
            stored_at=stored.boundary if stored is not None else 0,
            wrong=False,
            misread=(0, 0),
            drafts=chunk.drafts,
            settled=chunk.settled,
        )
        number = follower.number(request)
        follower.take("forward chunk", forward(follower.state, number, end, choice))

    def _with_drafts(self, request: Request, end: int) -> Chunk:
        """The chunk that is planned up to `end`, where it will run and with what will turn out of its drafts; rows
        without a draft pad it."""
        drafts = max(0, end - len(request.tokens) - request.placeholders)
        padding = drafts if not request.drafts else 0
        begin, count = self.follower.state.settled(self.follower.number(request)), end - request.computed
        reserves = request.checkpoint is not None
        chunk = Chunk(request.name, request.text, begin, count, False, (), drafts, padding, reserves=reserves)
        wrong = sum(each.drafts for each in self.rejected if each.request == request.name)
        return verified(chunk, len(request.text), wrong)

    def free(self, arguments: tuple[Any, ...], result: Any) -> None:
        """Of a request whose load has failed; otherwise blocks are lost as `lost` has it."""
        if not self.ending:
            self.follower.do("free", self.follower.number(_request(arguments)))

    def lost(self, before: Any, request: Request, after: Any) -> None:
        """A request lost its blocks: at once, or when a step in flight has executed; or it goes back with that step."""
        number = self.follower.number(request)
        pairs = zip(before.in_flight, after.in_flight, self.planned, strict=True)
        until = next((step for old, new, step in pairs if old.freed != new.freed), None)
        if self.gone_back is not None:
            self.gone_back.append((number, until))
        elif self.follower.state.in_step(number):
            self.follower.do("preempt in step", number)
        elif until is None and self.follower.status(request) != IDLE:
            self.follower.do("free", number)
        if until is not None:
            until.freed.append(number)
            self.follower.universe.begin_anew(request.name)

    def admitted(self, request: Request) -> None:
        if request.status is Status.LOADING:
            number = self.follower.number(request)
            self.follower.do("start loading", number, request.computed)

    def drop_lookups(self, request: Request) -> None:
        for entry in self._found(request):
            self.follower.do("drop lookup", entry)

    def committed(self, scheduled: Any) -> None:
        """The step is in flight; the blocks of its saves are referenced, and its asynchronous loads begin."""
        follower, state = self.follower, self.follower.state
        blocks = follower.universe.elements(BLOCK)
        writes = frozenset(block for block in blocks if state.changed(block))
        reads = frozenset(block for block in blocks if state.reading(block))
        # Before anybody else loses blocks, the step has those that its copies, and earlier ones, hold until it has run.
        until = scheduled.scheduler.in_flight[-1].freed
        waiting = (*until, *scheduled.scheduler.copied)
        self.planned.append(Planned(writes, reads, Counter(block for copied in until for block in copied), state.last))
        follower.take("commit step", commit_step(state, bool(waiting)))
        self._flush(scheduled)
        for save in self._referenced(scheduled.scheduler, scheduled.plan.saves):
            for label, block in self._saved_blocks(save):
                follower.do("save begins", self._saved_as(save.request, label, block), block)
        for request in scheduled.scheduler.requests.values():
            if request.status is Status.LOADING:
                for entry in follower.awaiting(request):
                    if not follower.state.loading(follower.state.table(entry)):
                        follower.do("load begins", entry, follower.state.table(entry))
        self.compare_tables(scheduled.scheduler)

    def _saved_blocks(self, save: Save) -> Iterator[tuple[Label, int]]:
        """The blocks of the object that is saved, each with what it is saved for; an object may lack some."""
        end, width = len(save.label.prefix), self._width(save.label)
        for behind, block in enumerate(reversed(save.blocks)):
            if block != NULL_BLOCK:
                boundary = (column_ending_at(end, width) + 1 - behind) * width if behind else end
                yield Label(save.label.group, save.label.prefix[:boundary]), block

    def _saved_as(self, request: str, label: Label, block: int) -> Entry:
        """The entry of the block: in the column of what is saved, or where the request has a checkpoint of it."""
        own, column = self.follower.universe.names[request], column_ending_at(len(label.prefix), self._width(label))
        entry = Entry(own, label.group, column)
        holding = (each for each in self.follower.checkpoints(entry) if self.follower.state.table(each) == block)
        return next(holding, entry)

    def _flush(self, scheduled: Any) -> None:
        """A load that the step announces may begin at once: what is to be saved of its blocks is saved before."""
        announced = (load for admission in scheduled.admissions for load in admission.loads)
        _, flushed = model.saving.before_step(scheduled.scheduler, scheduled.plan, announced)
        self.saved(flushed)
        self.flushed.update(flushed)

    def _referenced(self, scheduler: Any, saves: tuple[Save, ...]) -> Iterator[Save]:
        leaves = store_leaves(scheduler)
        for save in saves:
            rules = leaves[save.leaf].store
            if rules is not None and rules.references_sources:
                yield save

    def executed(self, worker: Worker) -> None:
        self.executing = self.planned.pop(0)
        self.worker = worker

    def settled(self, scheduler: Scheduler) -> None:
        assert self.executing is not None
        for number in self.executing.freed:
            self.follower.do("free", number)
        state = self.follower.state
        for request in scheduler.requests.values():
            number, computed = self.follower.number(request), request.computed
            known = max(state.verified(number), computed - request.in_flight)
            if state.verified(number) < state.computed(number) and (known, computed) != (
                state.verified(number),
                state.computed(number),
            ):
                self.follower.do("verify drafts", number, computed, known)

    def end_of_step(self, before: Any, plan: StepPlan, recovered: Any) -> None:
        """`spoilt` is what does not hold what was planned once all steps in flight have run, and whatever else the
        model withdrew."""
        assert self.executing is not None
        follower, step = self.follower, self.executing
        after, gone_back, self.gone_back = recovered.scheduler, self.gone_back or [], None
        if after is before:
            follower.take("end step", end_step(follower.state, step.as_executed))
            return
        for save in self._referenced(before, plan.saves):
            if save.request in recovered.rolled_back:
                for _, block in self._saved_blocks(save):
                    follower.do("save ends", block)
        state = follower.state
        spoilt = self._spoilt(before, after)
        kept = {number for number, until in gone_back if until is not None}
        kept |= {number for each in self.planned for number in each.freed}
        back = {number for number, until in gone_back if until is None}
        withdrawn = {follower.universe.names[name] for name, request in after.requests.items() if request.hit_withdrawn}
        withdrawn |= {
            entry.request
            for entry in follower.universe.elements(ENTRY)
            if entry.request in kept and state.table(entry) in spoilt
        }
        loss = Loss(
            spoilt=lambda block: block in spoilt,
            rolled_back=lambda request: request in back,
            withdrawn=lambda request: request in withdrawn,
            dropped=lambda block: sum(state.held(number, block) for number in back),
        )
        follower.take("lose step", lose_step(state, step.as_executed, loss))
        for each in self.planned:
            each.shows = _unspoilt(each.shows, spoilt)

    def _spoilt(self, before: Any, after: Any) -> set[int]:
        follower, worker = self.follower, self.worker
        configuration, labels = follower.universe.configuration, follower.universe.labels
        assert worker is not None
        for each in before.in_flight:
            worker, _ = EXECUTE(configuration, worker, each.plan)
        old, new = before.pool.labels, after.pool.labels
        withdrawn = {block for block in range(configuration.pool_blocks) if old[block] != new[block]}
        return withdrawn | {
            block
            for block, key in follower.relied_on()
            if key in labels
            and follower.state.last(block, key)
            and not worker.memory.holds(block, promised(configuration, labels[key]))
        }

    def load_ended(self, request: Request, succeeded: bool) -> None:
        if self.follower.status(request) == LOADING:
            self.follower.do("load commits" if succeeded else "load fails", self.follower.number(request))

    def saved(self, saves: tuple[Save, ...]) -> None:
        """Whatever guards a save, the encoding has to know that the block holds what is saved."""
        for save in saves:
            for label, block in self._saved_blocks(save) if save not in self.flushed else ():
                if not self.follower.state.now(block, self.follower.universe.label(label)):
                    raise Disagreement(f"block {block} is saved for {label}, which it need not hold")

    def saves_done(self, scheduler: Any, saves: tuple[Save, ...]) -> None:
        for save in self._referenced(scheduler, saves):
            if save in scheduler.stores[save.leaf].pending:
                for _, block in self._saved_blocks(save):
                    self.follower.do("save ends", block)

    @contextlib.contextmanager
    def mapping(self, name: str) -> Iterator[None]:
        """The transitions that are taken meanwhile come from the function `name` of the model."""
        start = len(self.follower.done)
        yield
        self.mapped.update((name, taken) for taken in self.follower.done[start:])

    @contextlib.contextmanager
    def undone_if_it_fails(self) -> Iterator[None]:
        """What was done so far is undone by an exception."""
        follower = self.follower
        before, done, names = follower.state, len(follower.done), dict(follower.universe.names)
        planned = [attrs.evolve(step, freed=[*step.freed]) for step in self.planned]
        try:
            yield
        except BaseException:
            follower.state, self.planned = before, planned
            self.executing, self.gone_back, self.ending = None, None, False
            follower.universe.names.update(names)
            del follower.done[done:]
            raise

    def compare(self, system: System) -> None:
        """Both sides after an action."""
        self.compare_tables(system.scheduler)
        universe, state = self.follower.universe, self.follower.state
        for block, key in self.follower.relied_on():
            if key in universe.labels and state.now(block, key):
                needed = promised(universe.configuration, universe.labels[key])
                if not system.worker.memory.holds(block, needed):
                    found = system.worker.memory.read(block)
                    raise Disagreement(
                        f"block {block} should show {needed}, and holds {found}: {self.follower.done[-12:]}"
                    )

    def compare_tables(self, scheduler: Scheduler) -> None:
        """References, hashes, tables and progress, after an action and when a step is planned."""
        follower, universe, state = self.follower, self.follower.universe, self.follower.state
        pool = scheduler.pool
        for block in range(1, len(pool.refs)):
            self._same(f"references of block {block}", state.refs(block), pool.refs[block])
            labels = pool.labels_of(block)
            whole = [universe.label(label) for label in labels if self._is_whole(label)]
            tails = [universe.label(label) for label in labels if not self._is_whole(label)]
            tail = state.tail_hash(block)
            self._same(f"hash of block {block}", state.full_hash(block), next(iter(whole), 0))
            self._same(f"tail hash of block {block}", tail, tail if tail in tails else next(iter(tails), 0))
        for request in scheduler.requests.values():
            for group, table in enumerate(request.tables):
                for column, block in enumerate(table):
                    entry = follower.entry(request, group, column)
                    self._same(f"{request.name}: group {group}, column {column}", state.table(entry), block)
            if request.status is Status.RUNNING or request.status is Status.LOADING:
                self._same(f"status of {request.name}", state.status(follower.number(request)), STATUS[request.status])
                self._same(f"computed of {request.name}", state.computed(follower.number(request)), request.computed)

    def _is_whole(self, label: Label) -> bool:
        return len(label.prefix) % self._width(label) == 0

    def _width(self, label: Label) -> int:
        return self.follower.universe.configuration.groups[label.group].block

    def _same(self, what: str, encoded: Any, of_model: int) -> None:
        if encoded != of_model:
            done = ", ".join(self.follower.done[-12:])
            raise Disagreement(f"{what}: {encoded} in the encoding, {of_model} in the model; after {done}")

    def check_invariants(self) -> None:
        """Every invariant and law holds of what was reached."""
        follower, state = self.follower, self.follower.state

        def stands_at(entry: Entry) -> tuple[Any, ...]:
            return state.settled(entry.request), state.filled(entry)

        statements = (
            *(invariant.of(state) for invariant in INVARIANTS),
            *cardinality_laws(state),
            *(law for law in laws_of(follower.words, stands_at) if law.variables.count(ENTRY) < 2),
        )
        for statement in statements:
            follower.check(f"{statement.name} does not hold", statement)


def _unspoilt(shows: Callable[[int, int], bool], spoilt: set[int]) -> Callable[[int, int], bool]:
    return lambda block, key: block not in spoilt and shows(block, key)


def _request(parts: Any) -> Request:
    return next(part for part in parts if isinstance(part, Request))


def _cells(request: Request) -> dict[tuple[int, int], int]:
    return {(g, c): block for g, table in enumerate(request.tables) for c, block in enumerate(table)}


def _come(before: Request, after: Request) -> list[tuple[int, int, int]]:
    old = _cells(before)
    return [(g, c, b) for (g, c), b in _cells(after).items() if b != NULL_BLOCK and old.get((g, c), NULL_BLOCK) != b]


def _gone(before: Request, after: Request) -> list[tuple[int, int, int]]:
    new = _cells(after)
    gone = [(g, c, b) for (g, c), b in _cells(before).items() if b != NULL_BLOCK and new.get((g, c)) != b]
    return sorted(gone, key=lambda cell: (cell[0], -cell[1]))


def follow(trace: Trace, policy: Policy, patch: pytest.MonkeyPatch, *, invariants: bool = False) -> Followed:
    """Run the trace on both sides. Raises Disagreement."""
    for module in ENCODING:
        patch.setattr(module, "z3", OnInts)
    recorder = Recorder(trace.configuration)
    _patch(recorder, patch)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), DEEPEST))
    system = initial(trace.configuration)
    for position, action in enumerate(trace.actions):
        recorder.rejected = _rejected(trace.actions[position:], len(system.scheduler.in_flight))
        with contextlib.suppress(IllegalAction):
            system = _followed(recorder, system, policy, action)
        recorder.compare(system)
        if system.assertion:
            break
    if invariants:
        recorder.check_invariants()
    return Followed(Counter(recorder.follower.done), recorder.mapped)


def _rejected(actions: tuple[Action, ...], in_flight: int) -> tuple[RejectedDrafts, ...]:
    """What the action says of drafts by which a step is executed that the first of `actions` plans, behind so many that
    are in flight."""
    first, *later = actions
    if isinstance(first, Step):
        return first.rejected
    for action in later if isinstance(first, Schedule) else ():
        if isinstance(action, Drain) or (isinstance(action, Execute) and not in_flight):
            return action.rejected if isinstance(action, Execute) else ()
        in_flight -= isinstance(action, Execute)
    return ()


def _followed(recorder: Recorder, system: System, policy: Policy, action: Action) -> System:
    block = None
    if isinstance(action, Evict):
        label = Label(action.group, system.texts[action.request][: action.boundary])
        block = system.scheduler.pool.find(label)
    done, names = len(recorder.follower.done), dict(recorder.follower.universe.names)
    with recorder.undone_if_it_fails():
        after, _ = apply(system, policy, action)
        if block is not None:
            with recorder.mapping("evict"):
                recorder.follower.do("evict", block)
        if isinstance(action, Reset):
            with recorder.mapping("reset"):
                recorder.follower.do("reset")
    followed = len(recorder.follower.done) > done or recorder.follower.universe.names != names
    recorder.follower.universe.meet(after)
    if _cache(after) != _cache(system) and not followed:
        raise Disagreement(f"{action} changes the cache, and is no transition of the encoding")
    return after


def _cache(system: System) -> object:
    """What the encoding has a say about."""
    scheduler, worker = system.scheduler, system.worker
    requests = {
        name: (request.tables, request.computed, request.status is Status.LOADED)
        for name, request in scheduler.requests.items()
        if request.tables
    }
    pool = scheduler.pool
    return pool.refs, pool.labels, pool.aliases, requests, len(scheduler.in_flight), worker.memory


def _patch(recorder: Recorder, patch: pytest.MonkeyPatch) -> None:
    noted = {
        model.allocation.retire: recorder.retire,
        model.allocation.extend: recorder.extend,
        model.admission.decide: recorder.decide,
        model.allocation.adopt: recorder.adopt,
        model.allocation.publish: recorder.publish,
        model.allocation.free: recorder.free,
    }
    for function, note in noted.items():
        _replace(patch, function, _noting(recorder, function, note))
    wrapped: tuple[Callable[..., Any], ...] = (
        model.admission.admit,
        model.step.schedule,
        model.worker.execute,
        model.output.settle,
        model.recovery.recover,
        model.scheduler.preempt,
        model.scheduler.finish,
        model.scheduler.end_load,
        model.saving.done,
        model.worker.save,
    )
    for function in wrapped:
        _replace(patch, function, getattr(_Around(recorder), function.__name__)(function))


class _Around:
    """What is done before and after functions of the model that are more than one transition."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def admit(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def admitting(*arguments: Any) -> Any:
            try:
                with self.recorder.undone_if_it_fails():
                    result = function(*arguments)
                    with self.recorder.mapping("admit"):
                        self.recorder.admitted(_request(result))
                    return result
            except BaseException:
                with self.recorder.mapping("admit"):
                    self.recorder.drop_lookups(_request(arguments))
                raise

        return admitting

    def schedule(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def scheduling(*arguments: Any) -> Any:
            self.recorder.executing = None
            scheduled = function(*arguments)
            with self.recorder.mapping("schedule"):
                self.recorder.committed(scheduled)
            return scheduled

        return scheduling

    def execute(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def executing(configuration: Any, worker: Any, plan: Any) -> Any:
            result = function(configuration, worker, plan)
            self.recorder.executed(result[0])
            return result

        return executing

    def settle(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def settling(*arguments: Any) -> Any:
            result = function(*arguments)
            with self.recorder.mapping("settle"):
                self.recorder.settled(result[0])
            return result

        return settling

    def recover(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def recovering(scheduler: Any, step: Any) -> Any:
            self.recorder.gone_back = []
            recovered = function(scheduler, step)
            with self.recorder.mapping("recover"):
                self.recorder.end_of_step(scheduler, step.plan, recovered)
            return recovered

        return recovering

    def preempt(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self._losing_blocks("preempt", function)

    def finish(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self._losing_blocks("finish", function)

    def _losing_blocks(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def losing(scheduler: Any, request_name: str, **options: Any) -> Any:
            recorder, request = self.recorder, scheduler.requests[request_name]
            recorder.ending = True
            result = function(scheduler, request_name, **options)
            recorder.ending = False
            with recorder.mapping(name):
                if request.status is Status.LOADING:
                    recorder.follower.do("abort loading", recorder.follower.number(request))
                else:
                    recorder.lost(scheduler, request, result)
            return result

        return losing

    def end_load(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def ending(scheduler: Any, name: str, succeeded: bool) -> Any:
            with self.recorder.mapping("end_load"):
                self.recorder.load_ended(scheduler.requests[name], succeeded)
            return function(scheduler, name, succeeded)

        return ending

    def done(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def ending(scheduler: Any, saves: Any) -> Any:
            with self.recorder.mapping("done"):
                self.recorder.saves_done(scheduler, saves)
            return function(scheduler, saves)

        return ending

    def save(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def saving(worker: Any, saves: Any) -> Any:
            self.recorder.saved(saves)
            self.recorder.flushed.difference_update(saves)
            return function(worker, saves)

        return saving


def _noting(
    recorder: Recorder, function: Callable[..., Any], note: Callable[[tuple[Any, ...], Any], None]
) -> Callable[..., Any]:
    @functools.wraps(function)
    def noting(*arguments: Any) -> Any:
        result = function(*arguments)
        with recorder.mapping(function.__name__):
            note(arguments, result)
        return result

    return noting


def _replace(patch: pytest.MonkeyPatch, function: Callable[..., Any], replacement: Callable[..., Any]) -> None:
    """In every module of the model that calls it."""
    for name, module in tuple(sys.modules.items()):
        if name.startswith("model."):
            for attribute, value in tuple(vars(module).items()):
                if value is function:
                    patch.setattr(module, attribute, replacement)
