"""The state of the cache proof on concrete values: the elements of one run, and the encoded transitions on ints."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from model.allocation import columns_out_of_sight
from model.configuration import Configuration, StateMode
from model.geometry import column_ending_at, columns_for
from model.memory import AttentionKV, RecurrentState
from model.pool import NULL_BLOCK, Label
from model.request import Request
from model.system import System
from solver.soundness import admitting, invariants, loading, running, state, stepping, vocabulary
from solver.soundness.cells import ACTIONS
from solver.soundness.state import FIELDS, State, initial_state
from solver.soundness.terms import BLOCK, BOUNDARY, ENTRY, KEY, REQUEST, Kind, Universal
from solver.soundness.transition import Transition
from solver.soundness.vocabulary import Entry, Vocabulary

BY_NAME = {action.name: action for action in ACTIONS}


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
    """A function of one entry, or of other elements, that computes each value once."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.values: dict[tuple[Any, ...], Any] = {}

    def __call__(self, *arguments: Any) -> Any:
        first = arguments[0]
        key = (first.request, first.group, first.column) if type(first) is Entry else arguments
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
            if name not in self.names:
                self.names[name] = self._numbered(text)

    def begin_anew(self, name: str) -> None:
        """The request is another element from now on: the old one keeps its blocks until they are free."""
        self.names[name] = self._numbered(self.texts[self.names[name]])

    def _numbered(self, text: tuple[str, ...]) -> int:
        number = len(self.texts) + 1
        self.texts[number] = text
        for group, boundary in itertools.product(range(len(self.configuration.groups)), range(1, len(text) + 1)):
            self.key(number, group, boundary)
        return number

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
        return max(columns_for(longest, group.block) for group in self.configuration.groups) + 1 + self.rows

    @property
    def rows(self) -> int:
        """Rows of drafts, and tokens for which a draft model has room, behind what a chunk runs."""
        return 2 * self.configuration.drafts

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
            every_state=lambda g: groups[g].recurrent and self.configuration.state_mode is StateMode.ALL,
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
        for choice in self._choices(statement):
            if not statement.formula(*choice):
                shown = ", ".join(str(parts_of((term,))) for term in choice)
                raise Disagreement(f"{what} (of {shown}); so far: {', '.join(self.done[-12:])}")

    def _choices(self, statement: Universal) -> Iterable[tuple[Any, ...]]:
        """One about an entry and a block says something only where the entry names the block, or it was found for the
        entry; one about two entries, where both do; one about two boundaries, only of those in the entry's column. Of
        what a block shows, only that counts on which somebody relies."""
        elements = {kind: self.universe.elements(kind) for kind in statement.variables}
        if statement.variables.count(ENTRY) > 1 or BOUNDARY in statement.variables:
            elements[ENTRY] = [entry for entry in elements[ENTRY] if self.state.table(entry) != NULL_BLOCK]
        if statement.variables.count(BLOCK) > 1:
            elements[BLOCK] = [block for block in elements[BLOCK] if self.state.refs(block)]
        if KEY in statement.variables:
            elements[KEY] = sorted({key for _, key in self.relied_on()})
        if statement.variables == (BLOCK, KEY):
            return sorted(self.relied_on())
        if statement.variables == (ENTRY, ENTRY, BLOCK):
            return self._sharing(elements[ENTRY])
        if statement.variables[:2] != (ENTRY, BLOCK):
            return itertools.product(*(elements[kind] for kind in statement.variables))
        boundaries = len(statement.variables) - 2
        return (
            (entry, block, *chosen)
            for entry in elements[ENTRY]
            for chosen in itertools.product(self._boundaries_of(entry), repeat=boundaries)
            for block in self._blocks_of(entry)
        )

    def _sharing(self, entries: list[Entry]) -> Iterable[tuple[Entry, Entry, int]]:
        """Two entries of each block that both name; they may be the same."""
        by_block: dict[int, list[Entry]] = {}
        for entry in entries:
            by_block.setdefault(int(self.state.table(entry)), []).append(entry)
        for block, sharers in by_block.items():
            yield from ((one, other, block) for one, other in itertools.product(sharers, sharers))

    def _blocks_of(self, entry: Entry) -> set[int]:
        return {int(self.state.table(entry)), int(self.state.found(entry))}

    def _boundaries_of(self, entry: Entry) -> list[int]:
        unit = self.universe.configuration.hash_block
        return [*range(self.words.column_start(entry) + unit, self.words.column_end(entry) + 1, unit)]

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
        """Blocks and keys on which somebody relies: those of hashes, those of table entries as far as filled and,
        wrongly, one token further, and those of the states from which requests go on."""
        pairs = set()
        for block in self.universe.elements(BLOCK):
            pairs |= {(block, key) for key in (self.state.full_hash(block), self.state.tail_hash(block)) if key}
        for entry in self.universe.elements(ENTRY):
            for boundary in (self.state.filled(entry), self.state.filled(entry) + 1):
                pairs.add((self.state.table(entry), self.words.key_of(entry, boundary)))
            if self.words.recurrent(entry.group) and self.state.reads(entry):
                pairs.add((self.state.table(entry), self.words.key_of(entry, self.state.settled(entry.request))))
        return {(block, key) for block, key in pairs if block != NULL_BLOCK}

    def entry(self, request: Request, group: int, column: int) -> Entry:
        return Entry(self.universe.names[request.name], group, column)

    def number(self, request: Request) -> Any:
        return self.universe.names[request.name]

    def status(self, request: Request) -> int:
        return int(self.state.status(self.number(request)))

    def checkpoints(self, of: Entry) -> list[Entry]:
        """Entries of its request and group that hold a checkpoint."""
        entries = (Entry(of.request, of.group, column) for column in range(self.universe.columns))
        return [entry for entry in entries if self.state.checkpoint(entry)]

    def awaiting(self, request: Request) -> list[Entry]:
        own = self.universe.names[request.name]
        return [entry for entry in self.universe.elements(ENTRY) if entry.request == own and self.state.awaits(entry)]


def promised(configuration: Configuration, label: Label) -> AttentionKV | RecurrentState:
    """What a block shows that holds what the key promises: in attention, the KV of its column up to the boundary."""
    group = configuration.groups[label.group]
    if group.recurrent:
        return RecurrentState(label.group, label.prefix)
    start = column_ending_at(len(label.prefix), group.block) * group.block
    return AttentionKV(label.group, start, label.prefix)
