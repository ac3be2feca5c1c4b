"""Concrete states of the small instance: every value of every element, as the solver's example has it.

`Situation` asks for states in which one action can happen: one after which an invariant is broken, or one that leads
exactly to a given state. An example is made as plain as it can be: as in an empty cache, but for what it needs.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import attrs
import z3

from model.pool import Label
from solver.decide import Z3_RLIMIT
from solver.soundness.cells import unknowns
from solver.soundness.instance import INSTANCE, LONGEST, NAMES, WIDTH, Element
from solver.soundness.invariants import Invariant
from solver.soundness.realistic import realistic
from solver.soundness.state import FIELDS, IDLE, LOADED, State, initial_state
from solver.soundness.terms import BLOCK, BOUNDARY, ENTRY, KEY, REQUEST, Kind
from solver.soundness.transition import Action, Transition
from solver.soundness.vocabulary import Entry, Formula, Term

DERIVED = frozenset({"words", "holders", "held"})
"""Fields of a state that follow from others, or never change."""

LEFTOVERS: dict[str, Callable[..., Formula]] = {
    "writer_entry": lambda state, block: state.writer(block) != state.words.nobody,
    "loader": lambda state, block: state.loading(block),
    "saved_key": lambda state, block: state.saves(block) > 0,
    "fresh_full": lambda state, block: state.full_hash(block) != state.words.no_key,
    "fresh_tail": lambda state, block: state.tail_hash(block) != state.words.no_key,
    "found_at": lambda state, entry: state.found(entry) != state.words.null,
    "state_column": lambda state, entry: z3.And(
        state.words.recurrent(entry.group), state.settled(entry.request) >= 1, state.status(entry.request) != IDLE
    ),
    "read_column": lambda state, entry: z3.And(state.words.recurrent(entry.group), state.in_step(entry.request)),
    "since": lambda state, request: state.in_step(request),
}
"""Fields that say something only sometimes, and when: what is left in them otherwise tells no states apart."""

Slot = tuple[str, tuple[Any, ...]]
"""A field and the terms that it is of."""


def _slots() -> tuple[Slot, ...]:
    """All values of a state, those first that an example should rather do without; nothing is told of the null block
    and of nobody. Content comes last: the rest decides what is needed of it."""
    told = {field for fields in FIELDS.values() for field in fields} | DERIVED
    entries = tuple(field.name for field in attrs.fields(State) if field.name not in told)
    order = ((REQUEST,), (ENTRY,), (BLOCK,))
    by_kind = sorted(FIELDS.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order))
    fields = [(kinds, field) for kinds, names in by_kind for field in reversed(names)]
    fields += [((BLOCK,), field) for field in entries]
    kept = {kind: INSTANCE.terms.of(kind)[1:] for kind in (BLOCK, REQUEST)}
    return tuple(
        (field, choice)
        for kinds, field in fields
        for choice in itertools.product(*(kept.get(kind, INSTANCE.terms.of(kind)) for kind in kinds))
    )


SLOTS = _slots()


def _value(state: State, slot: Slot) -> tuple[Term, ...]:
    value = getattr(state, slot[0])(*slot[1])
    return (value.request, value.group, value.column) if isinstance(value, Entry) else (value,)


INITIAL = tuple(_value(initial_state(INSTANCE.state.words), slot) for slot in SLOTS)
"""The terms of the initial state's values."""


def _is(state: State, slot: Slot, value: Sequence[Term]) -> Formula:
    """The state has these values in the slot, as far as they say something."""
    same = z3.And(*(one == other for one, other in zip(_value(state, slot), value, strict=True)))
    says = LEFTOVERS.get(slot[0])
    return z3.Implies(says(state, *slot[1]), same) if says is not None else same


@functools.cache
def _plain(number: int) -> Formula:
    """The arbitrary state's value in a slot is that of the initial state."""
    return _is(INSTANCE.state, SLOTS[number], INITIAL[number])


@attrs.frozen
class ConcreteState:
    """`values` by slot; `terms` are the same for the solver."""

    values: tuple[tuple[Element, ...], ...]
    terms: tuple[tuple[Term, ...], ...] = attrs.field(eq=False, repr=False)

    def of(self, field: str, *where: Element) -> Element:
        """The value of a field at elements; an entry is (request, group, column)."""
        value = self.values[_position(field, where)]
        return value if len(value) > 1 else value[0]

    def shown(self, content: str, block: int) -> frozenset[Label]:
        """Labels of which the block holds what they promise."""
        labels = (where[1] for field, where in SLOT_ELEMENTS if field == content and where[0] == block)
        return frozenset(label for label in labels if self.of(content, block, label))

    @property
    def unusual(self) -> tuple[int, ...]:
        """Slots in which it is not the initial state."""
        return tuple(n for n, (one, other) in enumerate(zip(self.values, _INITIAL_VALUES, strict=True)) if one != other)

    @property
    def is_initial(self) -> bool:
        return self.values == _INITIAL_VALUES

    @property
    def weight(self) -> int:
        """How much there is in it: values beside content, and blocks that show something."""
        fields = [SLOT_ELEMENTS[number] for number in self.unusual]
        content = {where[0] for field, where in fields if field in FIELDS[BLOCK, KEY]}
        return sum(field not in FIELDS[BLOCK, KEY] for field, _ in fields) + len(content)

    def is_state(self, state: State) -> Formula:
        """`state` is this one."""
        return z3.And(*(_is(state, slot, value) for slot, value in zip(SLOTS, self.terms, strict=True)))


def _element(term: Term) -> Element:
    if isinstance(term, Entry):
        return tuple(map(_element, (term.request, term.group, term.column)))
    if z3.is_int_value(term):
        return term.as_long()
    if z3.is_true(term) or z3.is_false(term):
        return z3.is_true(term)
    return INSTANCE.elements[term]


SLOT_ELEMENTS = tuple((field, tuple(map(_element, choice))) for field, choice in SLOTS)
_POSITIONS = {slot: number for number, slot in enumerate(SLOT_ELEMENTS)}
_INITIAL_VALUES = tuple(tuple(map(_element, value)) for value in INITIAL)


def _position(field: str, where: tuple[Element, ...]) -> int:
    return _POSITIONS[field, where]


@attrs.frozen
class Taken:
    """An action with concrete arguments."""

    action: str
    kinds: tuple[Kind, ...]
    arguments: tuple[Element, ...]

    def __str__(self) -> str:
        told = ", ".join(told_element(kind, element) for kind, element in zip(self.kinds, self.arguments, strict=True))
        return f"{self.action} ({told})" if told else self.action


def told_element(kind: Kind, element: Element) -> str:
    """An element in the words of the model."""
    if kind is ENTRY:
        request, group, column = element
        return f"{NAMES[request]}: group {group}, column {column}"
    if kind is REQUEST:
        return NAMES[element]
    return f"block {element}" if kind is BLOCK else f"{element} tokens"


@attrs.frozen
class Example:
    """A state, and what is done in it."""

    state: ConcreteState
    taken: Taken


class Situation:
    """States of the instance in which `invariants` hold of everything and `action` can happen."""

    def __init__(self, action: Action, invariants: Sequence[Invariant]) -> None:
        self.action = action
        self.arguments = unknowns(action.arguments, "the")
        self.transition = action.of(INSTANCE.state, *self.arguments)
        self._solver = z3.SimpleSolver()
        self._solver.set("rlimit", Z3_RLIMIT)
        self._solver.add(*INSTANCE.facts, *_closed(), *map(INSTANCE.holds, invariants))
        self._solver.add(*INSTANCE.counted(INSTANCE.state), *INSTANCE.counted(self.transition.after))
        self._solver.add(*_of_elements(action, self.arguments, self.transition))
        self._solver.add(*(INSTANCE.everywhere(own) for own in (*self.transition.guards, *self.transition.choices)))

    def breaking(self, invariant: Invariant) -> Example | None:
        """A state from which the action breaks the invariant; None if there is none, or none was found."""
        found = self._example(z3.Not(INSTANCE.everywhere(invariant.of(self.transition.after))))
        return found if isinstance(found, Example) else None

    def leading_to(self, state: ConcreteState, known: Collection[ConcreteState]) -> Example | z3.CheckSatResult:
        """A state that is not `known` from which the action leads to `state`; else unsat, or unknown."""
        others = (z3.Not(other.is_state(INSTANCE.state)) for other in known)
        return self._example(state.is_state(self.transition.after), *others)

    def making_possible(self, failing: Action, invariant: Invariant) -> tuple[Example, Example] | z3.CheckSatResult:
        """A state from which the action leads to one where `failing` breaks the invariant, which it did not before:
        not with the same arguments."""
        arguments = unknowns(failing.arguments, "then the")

        def breaks(state: State) -> Formula:
            then = failing.of(state, *arguments)
            own = (INSTANCE.everywhere(each) for each in (*then.guards, *then.choices))
            broken = z3.Not(INSTANCE.everywhere(invariant.of(then.after)))
            return z3.And(*_of_elements(failing, arguments, then), *own, *INSTANCE.counted(then.after), broken)

        after = self.transition.after
        held = INSTANCE.everywhere(invariant.of(after))
        with self._examples(held, breaks(after), z3.Not(breaks(INSTANCE.state))) as model:
            if isinstance(model, z3.CheckSatResult):
                return model
            return self._read(model), Example(_state(model, after), _taken(model, failing, arguments))

    def _example(self, *wanted: Formula) -> Example | z3.CheckSatResult:
        with self._examples(*wanted) as model:
            return model if isinstance(model, z3.CheckSatResult) else self._read(model)

    @contextlib.contextmanager
    def _examples(self, *wanted: Formula) -> Iterator[z3.ModelRef | z3.CheckSatResult]:
        """A plain example of what is wanted; else unsat, or unknown."""
        depth = self._solver.num_scopes()
        self._solver.push()
        try:
            self._solver.add(*wanted)
            answer = self._solver.check()
            if answer == z3.sat:
                self._make_plain()
            yield self._solver.model() if answer == z3.sat else answer
        finally:
            self._solver.pop(self._solver.num_scopes() - depth)

    def _make_plain(self) -> None:
        for wish in (*realistic(), *self._simple_arguments()):
            self._prefer(wish)
        for _, numbers in itertools.groupby(range(len(SLOTS)), key=lambda number: SLOTS[number][0]):
            wishes = [_plain(number) for number in numbers]
            if not self._prefer(*wishes):
                self._prefer_each(wishes)
        self._solver.check()

    def _prefer_each(self, wishes: list[Formula]) -> None:
        while wishes:
            self._solver.check()
            model = self._solver.model()
            granted = [wish for wish in wishes if z3.is_true(model.eval(wish, model_completion=True))]
            self._solver.add(*granted)
            wishes = [wish for wish in wishes if not any(wish is other for other in granted)]
            if wishes:
                self._prefer(wishes.pop(0))

    def _prefer(self, *wishes: Formula) -> bool:
        """Keep the wishes if they can be granted together."""
        self._solver.push()
        self._solver.add(*wishes)
        if self._solver.check() == z3.sat:
            return True
        self._solver.pop()
        return False

    def _simple_arguments(self) -> Iterator[Formula]:
        for kind, argument in zip(self.action.arguments, self.arguments, strict=True):
            if kind is ENTRY:
                yield self._admits_one(argument.request)
                yield INSTANCE.state.found(argument) == INSTANCE.state.words.null
            elif kind is BOUNDARY:
                yield argument <= 2 * WIDTH
                yield argument == WIDTH

    def _admits_one(self, request: Term) -> Formula:
        """While a request is being admitted, no lookup of another is outstanding."""
        state = INSTANCE.state
        entries = INSTANCE.terms.of(ENTRY)
        nothing = (z3.Or(state.found(e) == state.words.null, e.request == request) for e in entries)
        return z3.Implies(state.status(request) == IDLE, z3.And(*nothing))

    def _read(self, model: z3.ModelRef) -> Example:
        return Example(_state(model, INSTANCE.state), _taken(model, self.action, self.arguments))


def _state(model: z3.ModelRef, state: State) -> ConcreteState:
    """The values of an example; what is left over in a slot is not told."""
    named = _names(model)
    terms: list[tuple[Term, ...]] = []
    for slot, usual in zip(SLOTS, INITIAL, strict=True):
        says = LEFTOVERS.get(slot[0])
        told = says is None or z3.is_true(model.eval(says(state, *slot[1]), model_completion=True))
        terms.append(tuple(map(named, _value(state, slot))) if told else usual)
    return ConcreteState(tuple(tuple(map(_element, value)) for value in terms), tuple(terms))


def _taken(model: z3.ModelRef, action: Action, arguments: tuple[Any, ...]) -> Taken:
    named = _names(model)
    given = (
        Entry(named(a.request), named(a.group), named(a.column)) if isinstance(a, Entry) else named(a)
        for a in arguments
    )
    return Taken(action.name, action.arguments, tuple(map(_element, given)))


def _names(model: z3.ModelRef) -> Callable[[Term], Term]:
    """What names a term's value: an element of the instance, a number or a truth value."""
    names = {_known(model, term): term for term in INSTANCE.elements}
    return lambda term: names.get(_known(model, term), model.eval(term, model_completion=True))


def _known(model: z3.ModelRef, term: Term) -> int:
    return int(model.eval(term, model_completion=True).get_id())


def _of_elements(action: Action, arguments: tuple[Any, ...], transition: Transition) -> Iterator[Formula]:
    """The terms of the action stand for elements."""
    for kind, argument in zip(action.arguments, arguments, strict=True):
        yield INSTANCE.is_element(kind, argument)
    yield from map(INSTANCE.is_entry, transition.terms.get(ENTRY, ()))
    for block in INSTANCE.terms.of(BLOCK):
        yield from map(INSTANCE.is_entry, transition.entries_of(block))


@functools.cache
def _closed() -> tuple[Formula, ...]:
    """Values of the arbitrary state are elements of the instance."""
    words = INSTANCE.state.words
    known = {sort.name(): terms for sort, terms in _elements_by_sort().items()}
    found: list[Formula] = []
    nowhere = Entry(words.nobody, words.some_group, z3.IntVal(0))
    for field, choice in SLOTS:
        value = getattr(INSTANCE.state, field)(*choice)
        if isinstance(value, Entry):
            found.append(z3.Or(value.is_entry(nowhere), INSTANCE.is_entry(value)))
        elif z3.is_int(value):
            found.append(z3.And(0 <= value, value <= (LOADED if field == "status" else LONGEST)))
        elif not z3.is_bool(value):
            found.append(z3.Or(*(value == term for term in known[value.sort().name()])))
    found += [INSTANCE.state.status(words.nobody) == IDLE, z3.Not(INSTANCE.state.in_step(words.nobody))]
    return tuple(found)


def _elements_by_sort() -> dict[Any, list[Term]]:
    by_sort: dict[Any, list[Term]] = {}
    for term in INSTANCE.elements:
        by_sort.setdefault(term.sort(), []).append(term)
    return by_sort


@functools.cache
def chosen_by(action: Action) -> frozenset[str]:
    """Names of what the action leaves open beside its arguments: what it writes or reads, what is lost."""
    arguments = unknowns(action.arguments, "the")
    transition = action.of(INSTANCE.state, *arguments)
    formulas = [INSTANCE.everywhere(own) for own in (*transition.guards, *transition.choices)]
    formulas += [z3.And(*INSTANCE.counted(transition.after))]
    formulas += [value == value for slot in SLOTS for value in _value(transition.after, slot)]
    known = [z3.And(*_closed()), *INSTANCE.facts, *_of_elements(action, arguments, Transition((), INSTANCE.state))]
    known += [value == value for slot in SLOTS for value in _value(INSTANCE.state, slot)]
    known += list(INSTANCE.counted(INSTANCE.state))
    return _symbols(formulas) - _symbols(known)


def _symbols(formulas: Sequence[Formula]) -> frozenset[str]:
    """Names of all unknowns in the formulas."""
    todo, seen, found = list(formulas), set[int](), set[str]()
    while todo:
        formula = todo.pop()
        if formula.get_id() not in seen:
            seen.add(formula.get_id())
            todo += formula.children()
            if formula.decl().kind() == z3.Z3_OP_UNINTERPRETED:
                found.add(formula.decl().name())
    return frozenset(found)
