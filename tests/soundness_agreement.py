"""Follows a run of the model with the encoded transitions of the cache proof, one by one, on concrete values.

Every call of the model that changes block tables, the pool or memory becomes transitions of the encoding. Their guards
have to hold for all blocks, entries and requests of the run, and after each action both sides have to agree: on
references, hashes, tables and progress exactly, on content in that whatever the encoding says a block shows, it holds.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

import model.admission
import model.scheduler
import model.step
import model.system
import model.worker
from model.actions import Action, Evict, Reset
from model.allocation import columns_out_of_sight
from model.configuration import Configuration
from model.errors import IllegalAction
from model.geometry import column_ending_at, columns_for
from model.memory import AttentionKV, RecurrentState
from model.policy import Policy
from model.pool import NULL_BLOCK, Label, Pool
from model.request import Request, Status
from model.system import System, apply, initial
from model.trace import Trace
from solver.soundness import admitting, invariants, loading, running, state, stepping, vocabulary
from solver.soundness.cells import ACTIONS
from solver.soundness.invariants import INVARIANTS
from solver.soundness.running import ChunkChoice, forward
from solver.soundness.state import FIELDS, IDLE, LOADED, LOADING, RUNNING, State, cardinality_laws, initial_state
from solver.soundness.stepping import Executed, Loss, end_step, lose_steps
from solver.soundness.terms import BLOCK, BOUNDARY, ENTRY, KEY, REQUEST, Kind, Universal
from solver.soundness.transition import Transition
from solver.soundness.vocabulary import Entry, Vocabulary, laws_of

BY_NAME = {action.name: action for action in ACTIONS}
STATUS = {Status.RUNNING: RUNNING, Status.LOADING: LOADING, Status.LOADED: LOADED, Status.LOAD_FAILED: LOADED}


class Disagreement(AssertionError):
    """The encoding and the model part ways."""


class OnInts:
    """What the encoding uses of z3, on ints and bools: the same functions then compute concrete values."""

    BoolVal = bool
    IntVal = int

    @staticmethod
    def If(condition: bool, one: Any, other: Any) -> Any:
        return one if condition else other

    @staticmethod
    def And(*parts: bool) -> bool:
        return all(parts)

    @staticmethod
    def Or(*parts: bool) -> bool:
        return any(parts)

    @staticmethod
    def Not(part: bool) -> bool:
        return not part

    @staticmethod
    def Implies(condition: bool, conclusion: bool) -> bool:
        return not condition or conclusion


ENCODING = (vocabulary, state, admitting, running, loading, stepping, invariants)
"""The modules that compute on ints while a run is followed."""


def parts_of(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments of a function with entries as their parts, to look them up."""
    parts: list[Any] = []
    for argument in arguments:
        parts += (argument.request, argument.group, argument.column) if isinstance(argument, Entry) else (argument,)
    return tuple(parts)


class Remembered:
    """A function of elements that computes each value once."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.values: dict[tuple[Any, ...], Any] = {}

    def __call__(self, *arguments: Any) -> Any:
        key = parts_of(arguments)
        if key not in self.values:
            self.values[key] = self.function(*arguments)
        return self.values[key]


@attrs.frozen(eq=False)
class Universe:
    """The elements of one run. Requests and keys are numbered from 1; 0 is nobody, no key, the null block."""

    configuration: Configuration
    texts: dict[int, tuple[str, ...]] = attrs.Factory(dict)
    keys: dict[tuple[Any, ...], int] = attrs.Factory(dict)
    extents: dict[int, int] = attrs.Factory(dict)
    names: dict[str, int] = attrs.Factory(dict)

    def meet(self, system: System) -> None:
        """Take in requests that have arrived."""
        for name, text in system.texts.items():
            number = self.names.setdefault(name, len(self.names) + 1)
            if number not in self.texts:
                self.texts[number] = text
                for group, boundary in itertools.product(
                    range(len(self.configuration.groups)), range(1, len(text) + 1)
                ):
                    self.key(number, group, boundary)

    def key(self, request: int, group: int, boundary: int) -> int:
        text = self.texts.get(request, ())
        known = 0 < boundary <= len(text)
        return self._number((group, text[:boundary]) if known else (group, request, boundary), boundary)

    def label(self, label: Label | None) -> int:
        """The key of what a block is cached for."""
        return self._number((label.group, label.prefix), len(label.prefix)) if label else 0

    def _number(self, what: tuple[Any, ...], boundary: int) -> int:
        number = self.keys.setdefault(what, len(self.keys) + 1)
        self.extents[number] = boundary
        return number

    @property
    def labels(self) -> dict[int, Label]:
        """Keys that are prefixes of known texts."""
        return {number: Label(*what) for what, number in self.keys.items() if len(what) == 2}

    @property
    def columns(self) -> int:
        longest = max((len(text) for text in self.texts.values()), default=1)
        return max(columns_for(longest, group.block) for group in self.configuration.groups) + 1

    def elements(self, kind: Kind) -> list[Any]:
        if kind is BLOCK:
            return list(range(self.configuration.pool_blocks))
        if kind is REQUEST:
            return [0, *self.texts]
        if kind is KEY:
            return list(range(1, len(self.keys) + 1))
        if kind is ENTRY:
            groups = range(len(self.configuration.groups))
            return [Entry(*entry) for entry in itertools.product(self.texts, groups, range(self.columns))]
        longest = max((len(text) for text in self.texts.values()), default=1)
        return list(range(longest + 1))

    def words(self) -> Vocabulary:
        groups = self.configuration.groups

        def sees(group: int, column: int, boundary: int) -> bool:
            spec = groups[group]
            if boundary < 1 or not 0 <= column * spec.block < boundary:
                return False
            return column >= columns_out_of_sight(spec, boundary)

        extents = self.extents
        return Vocabulary(
            null=NULL_BLOCK,
            no_key=0,
            nobody=0,
            some_group=0,
            recurrent=lambda g: groups[g].recurrent,
            key=self.key,
            extent=lambda k: extents.get(k, 0),
            start=lambda g, c: c * groups[g].block,
            end=lambda g, c: (c + 1) * groups[g].block,
            ending=lambda g, n: column_ending_at(n, groups[g].block),
            sees=sees,
        )


class Follower:
    """The encoded state, and how far the model is followed."""

    def __init__(self, configuration: Configuration) -> None:
        self.universe = Universe(configuration)
        self.words = self.universe.words()
        self.state = self._remembering(initial_state(self.words))
        self.done: list[str] = []

    def do(self, name: str, *arguments: Any) -> None:
        """One transition: its guards have to hold."""
        self.take(name, BY_NAME[name].build(self.state, *arguments))

    def take(self, name: str, transition: Transition) -> None:
        for guard in (*transition.guards, *transition.choices):
            self.check(f"{name} cannot happen in the encoding: {guard.name}", guard)
        self.state = self._remembering(transition.after)
        self.done.append(name)

    def check(self, what: str, statement: Universal) -> None:
        """A statement has to hold of all elements; one about several, of the entries that name a block, of the blocks
        that are referenced, and of the keys that somebody relies on."""
        elements = {kind: self.universe.elements(kind) for kind in statement.variables}
        if statement.variables.count(ENTRY) > 1 or BOUNDARY in statement.variables:
            elements[ENTRY] = [entry for entry in elements[ENTRY] if self.state.table(entry) != NULL_BLOCK]
        if statement.variables.count(BLOCK) > 1:
            elements[BLOCK] = [block for block in elements[BLOCK] if self.state.refs(block)]
        if KEY in statement.variables:
            elements[KEY] = sorted({key for _, key in self.relied_on()})
        if statement.variables.count(BOUNDARY) > 1:
            elements[BLOCK] = sorted({self.state.table(entry) for entry in elements[ENTRY]})
            elements[BOUNDARY] = elements[BOUNDARY][:: self.universe.configuration.hash_block]
        for choice in itertools.product(*(elements[kind] for kind in statement.variables)):
            if not statement.formula(*choice):
                shown = ", ".join(str(parts_of((term,))) for term in choice)
                raise Disagreement(f"{what} (of {shown}); so far: {', '.join(self.done[-12:])}")

    def _remembering(self, state: State) -> State:
        """The state with functions that compute each value once; those that are the same as before already do."""
        names = (
            *(field for fields in FIELDS.values() for field in fields),
            "holders",
            "held",
            "writer_entry",
            "loader",
        )
        functions = {name: getattr(state, name) for name in names}
        fresh = {name: Remembered(f) for name, f in functions.items() if not isinstance(f, Remembered)}
        return attrs.evolve(state, **fresh)

    def relied_on(self) -> set[tuple[int, int]]:
        """Blocks and keys on which somebody relies: those of hashes, and those of table entries as far as filled and,
        wrongly, one token further."""
        pairs = set()
        for block in self.universe.elements(BLOCK):
            pairs |= {(block, key) for key in (self.state.full_hash(block), self.state.tail_hash(block)) if key}
        for entry in self.universe.elements(ENTRY):
            for boundary in (self.state.filled(entry), self.state.filled(entry) + 1):
                pairs.add((self.state.table(entry), self.words.key_of(entry, boundary)))
        return {(block, key) for block, key in pairs if block != NULL_BLOCK}

    def entry(self, request: Request, group: int, column: int) -> Entry:
        return Entry(self.universe.names[request.name], group, column)

    def number(self, request: Request) -> Any:
        return self.universe.names[request.name]

    def status(self, request: Request) -> int:
        return int(self.state.status(self.number(request)))

    def awaiting(self, request: Request) -> list[Entry]:
        own = self.universe.names[request.name]
        return [entry for entry in self.universe.elements(ENTRY) if entry.request == own and self.state.awaits(entry)]


class Recorder:
    """Turns what the model does into transitions."""

    def __init__(self, configuration: Configuration) -> None:
        self.follower = Follower(configuration)
        self.rolling_back = False

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
                    self.follower.do("allocate", entry, block)
                    if block in copies:
                        self.follower.do("copy for reader", entry, copies[block].source, block)

    def adopt(self, arguments: tuple[Any, ...], result: Any) -> None:
        before, after = _request(arguments), _request(result)
        pool = next(argument for argument in arguments if isinstance(argument, Pool))
        hits: list[tuple[Entry, int]] = []
        taken = []
        for group, column, block in _come(before, after):
            entry = self.follower.entry(after, group, column)
            boundary = self._hit(pool, before, entry, block)
            if boundary:
                self.follower.do("look up", entry, block, boundary)
                # A tail stays found until it is copied; vLLM references it meanwhile.
                hits += [(entry, block)] if boundary == self.follower.words.column_end(entry) else []
            else:
                taken.append((group, column, block))
        for entry, block in hits:
            self.follower.do("touch", entry, block)
        for group, column, block in taken:
            self.follower.do("allocate", self.follower.entry(after, group, column), block)
        for group, column, _ in taken:
            self.follower.do("await load", self.follower.entry(after, group, column))

    def _hit(self, pool: Pool, request: Request, entry: Entry, block: int) -> int:
        """The boundary in the entry's column for which the block is cached; 0 if it is no hit."""
        words = self.follower.words
        first, end = words.column_start(entry), words.column_end(entry)
        return next(
            (
                len(label.prefix)
                for label in pool.labels_of(block)
                if label.group == entry.group
                and first < len(label.prefix) <= end
                and label.prefix == request.tokens[: len(label.prefix)]
            ),
            0,
        )

    def publish(self, arguments: tuple[Any, ...], result: Any) -> None:
        request, follower = _request(arguments), self.follower
        tokens = arguments[3]
        if request.status is Status.RUNNING:
            self._chunk(request, tokens)
        before, after = (next(part for part in parts if isinstance(part, Pool)) for parts in (arguments, result))
        for group, table in enumerate(request.tables):
            for column, block in enumerate(table):
                label = after.labels[block]
                if block == NULL_BLOCK or label is None or before.labels[block] == label:
                    continue
                entry, boundary = follower.entry(request, group, column), len(label.prefix)
                if boundary == follower.words.column_end(entry):
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
        groups = follower.universe.configuration.groups
        for group, table in enumerate(request.tables):
            width = groups[group].block
            first = column_ending_at(end, width) if groups[group].recurrent else request.computed // width
            for column in range(first, columns_for(end, width)):
                written[table[column]] = (group, column)
        choice = ChunkChoice(
            written=lambda block: block in written,
            written_in=lambda block: written.get(block, (0, 0)),
            wrong=False,
            misread=(0, 0),
        )
        number = follower.number(request)
        follower.take("forward chunk", forward(follower.state, number, end, choice))

    def free(self, arguments: tuple[Any, ...], result: Any) -> None:
        request = _request(arguments)
        if not self.rolling_back and (any(request.tables) or self.follower.status(request) != IDLE):
            self.follower.do("free", self.follower.number(request))

    @contextlib.contextmanager
    def admitting(self) -> Iterator[None]:
        """An admission that fails is undone."""
        before, done = self.follower.state, len(self.follower.done)
        try:
            yield
        except BaseException:
            self.follower.state = before
            del self.follower.done[done:]
            raise

    def admitted(self, request: Request) -> None:
        if request.status is Status.LOADING:
            number = self.follower.number(request)
            self.follower.do("start loading", number, request.computed)

    def executed(self, plan: Any) -> None:
        if any(load.fails for load in plan.loads):
            return
        state = self.follower.state
        step = Executed(
            writes=lambda block: state.queued_writes(block) >= 1,
            reads=lambda block: state.queued_reads(block) >= 1,
            between=lambda block, key: False,
        )
        self.follower.take("end step", end_step(state, step))

    def rolled_back(self, before: Any, plan: Any, worker: Any, after: Any, names: tuple[str, ...]) -> None:
        """`spoilt` is what does not hold what was planned, and whatever else the model withdrew."""
        if before is after or not any(load.fails for load in plan.loads):
            return
        follower, state = self.follower, self.follower.state
        labels = follower.universe.labels
        spoilt = {
            block
            for block in range(follower.universe.configuration.pool_blocks)
            if before.pool.labels[block] != after.pool.labels[block]
        }
        spoilt |= {
            block
            for block, key in self.follower.relied_on()
            if key in labels
            and state.last(block, key)
            and not worker.memory.holds(block, promised(follower.universe.configuration, labels[key]))
        }
        back = {follower.universe.names[name] for name in names}
        withdrawn = {follower.universe.names[name] for name, request in after.requests.items() if request.hit_withdrawn}
        loss = Loss(
            spoilt=lambda block: block in spoilt,
            rolled_back=lambda request: request in back,
            withdrawn=lambda request: request in withdrawn,
            dropped=lambda block: sum(state.held(number, block) for number in back),
        )
        follower.take("lose steps", lose_steps(state, loss))

    def load_ended(self, request: Request, succeeded: bool) -> None:
        follower = self.follower
        if follower.status(request) != LOADING:
            return
        for entry in follower.awaiting(request):
            follower.do("load begins", entry, follower.state.table(entry))
        follower.do("load commits" if succeeded else "load fails", follower.number(request))

    def compare(self, system: System) -> None:
        """Both sides after an action."""
        follower, universe, state = self.follower, self.follower.universe, self.follower.state
        pool = system.scheduler.pool
        for block in range(1, len(pool.refs)):
            self._same(f"references of block {block}", state.refs(block), pool.refs[block])
            label = pool.labels[block]
            full = label is not None and len(label.prefix) % universe.configuration.groups[label.group].block == 0
            self._same(f"hash of block {block}", state.full_hash(block), universe.label(label if full else None))
            self._same(f"tail hash of block {block}", state.tail_hash(block), universe.label(None if full else label))
        for request in system.scheduler.requests.values():
            for group, table in enumerate(request.tables):
                for column, block in enumerate(table):
                    entry = follower.entry(request, group, column)
                    self._same(f"{request.name}: group {group}, column {column}", state.table(entry), block)
            if request.status is Status.RUNNING or request.status is Status.LOADING:
                self._same(f"status of {request.name}", state.status(follower.number(request)), STATUS[request.status])
                self._same(f"computed of {request.name}", state.computed(follower.number(request)), request.computed)
        labels = universe.labels
        for block, key in self.follower.relied_on():
            if key in labels and state.now(block, key):
                needed = promised(universe.configuration, labels[key])
                if not system.worker.memory.holds(block, needed):
                    found = system.worker.memory.read(block)
                    raise Disagreement(f"block {block} should show {needed}, and holds {found}: {follower.done[-12:]}")

    def _same(self, what: str, encoded: Any, of_model: int) -> None:
        if encoded != of_model:
            done = ", ".join(self.follower.done[-12:])
            raise Disagreement(f"{what}: {encoded} in the encoding, {of_model} in the model; after {done}")

    def check_invariants(self) -> None:
        """Every invariant and law holds of what was reached."""
        follower, state = self.follower, self.follower.state

        def stands_at(entry: Entry) -> tuple[Any, ...]:
            return state.computed(entry.request), state.filled(entry)

        statements = (
            *(invariant.of(state) for invariant in INVARIANTS),
            *cardinality_laws(state),
            *(law for law in laws_of(follower.words, stands_at) if law.variables.count(ENTRY) < 2),
        )
        for statement in statements:
            follower.check(f"{statement.name} does not hold", statement)


def promised(configuration: Configuration, label: Label) -> AttentionKV | RecurrentState:
    """What a block shows that holds what the key promises: in attention, the KV of its column up to the boundary."""
    group = configuration.groups[label.group]
    if group.recurrent:
        return RecurrentState(label.group, label.prefix)
    start = column_ending_at(len(label.prefix), group.block) * group.block
    return AttentionKV(label.group, start, label.prefix)


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


def follow(trace: Trace, policy: Policy, patch: pytest.MonkeyPatch, *, invariants: bool = False) -> list[str]:
    """Run the trace on both sides; the transitions that were taken. Raises Disagreement."""
    for module in ENCODING:
        patch.setattr(module, "z3", OnInts)
    recorder = Recorder(trace.configuration)
    _patch(recorder, patch)
    system = initial(trace.configuration)
    for action in trace.actions:
        with contextlib.suppress(IllegalAction):
            system = _followed(recorder, system, policy, action)
        recorder.compare(system)
        if system.assertion:
            break
    if invariants:
        recorder.check_invariants()
    return recorder.follower.done


def _followed(recorder: Recorder, system: System, policy: Policy, action: Action) -> System:
    block = None
    if isinstance(action, Evict):
        label = Label(action.group, system.texts[action.request][: action.boundary])
        block = system.scheduler.pool.find(label)
    with recorder.admitting():
        after, _ = apply(system, policy, action)
        if block is not None:
            recorder.follower.do("evict", block)
        if isinstance(action, Reset):
            recorder.follower.do("reset")
    recorder.follower.universe.meet(after)
    return after


def _patch(recorder: Recorder, patch: pytest.MonkeyPatch) -> None:
    for name in ("retire", "extend", "adopt", "publish", "free"):
        for module in (model.scheduler, model.step, model.admission):
            if hasattr(module, name):
                patch.setattr(module, name, _noting(getattr(module, name), getattr(recorder, name)))

    admit = model.step.admit

    def admitting(*arguments: Any) -> Any:
        with recorder.admitting():
            result = admit(*arguments)
            recorder.admitted(_request(result))
            return result

    patch.setattr(model.step, "admit", admitting)
    schedule, execute, recover = model.system.schedule, model.worker.execute, model.system.recover
    executed: dict[str, Any] = {}

    def executing(configuration: Any, worker: Any, plan: Any) -> Any:
        result = execute(configuration, worker, plan)
        executed["worker"] = result[0]
        recorder.executed(plan)
        return result

    def scheduling(*arguments: Any) -> Any:
        planned = schedule(*arguments)
        recorder.follower.do("commit step")
        return planned

    def recovering(scheduler: Any, step: Any) -> Any:
        recorder.rolling_back = True
        recovered = recover(scheduler, step)
        recorder.rolling_back = False
        recorder.rolled_back(scheduler, step.plan, executed["worker"], recovered.scheduler, recovered.rolled_back)
        return recovered

    patch.setattr(model.system, "schedule", scheduling)
    patch.setattr(model.worker, "execute", executing)
    patch.setattr(model.system, "recover", recovering)
    end_load, finish = model.scheduler.end_load, model.scheduler.finish

    def ending_load(scheduler: Any, name: str, succeeded: bool) -> Any:
        recorder.load_ended(scheduler.requests[name], succeeded)
        return end_load(scheduler, name, succeeded)

    def finishing(scheduler: Any, name: str) -> Any:
        request = scheduler.requests[name]
        if request.status is Status.LOADING:
            recorder.follower.do("abort loading", recorder.follower.number(request))
        return finish(scheduler, name)

    patch.setattr(model.scheduler, "end_load", ending_load)
    patch.setattr(model.scheduler, "finish", finishing)


def _noting(function: Callable[..., Any], note: Callable[[tuple[Any, ...], Any], None]) -> Callable[..., Any]:
    @functools.wraps(function)
    def noting(*arguments: Any) -> Any:
        result = function(*arguments)
        note(arguments, result)
        return result

    return noting
