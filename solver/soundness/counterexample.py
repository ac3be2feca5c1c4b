"""A failed cell in words: a small state from which the action breaks the invariant.

It is a counterexample to induction: a state in which every invariant holds, of the terms that the obligation names, and
not one that is known to be reachable.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import z3

from solver.soundness.cells import BEFORE, Cell, Row, unknowns
from solver.soundness.deciding import RowSolver
from solver.soundness.state import FIELDS, STATUS_WORDS, State
from solver.soundness.terms import BLOCK, BOUNDARY, ENTRY, KEY, REQUEST, Kind
from solver.soundness.vocabulary import Entry

NOTHING = {"0", "False", "nothing", "nobody", "the null block", "idle"}
"""Values as in an empty cache, which need not be told."""


def in_words(cell: Cell, row: Row, solver: RowSolver) -> list[str]:
    """The state, the action's arguments, and what is different afterwards. Empty if no example is found again."""
    kinds = (*row.action.arguments, *cell.invariant.variables)
    terms = (*row.arguments, *unknowns(cell.invariant.variables, "any"))
    named = {kind: [term for of, term in zip(kinds, terms, strict=True) if of is kind] for kind in Kind}
    for entry in named[ENTRY]:
        named[BLOCK].append(BEFORE.table(entry))
        named[REQUEST].append(entry.request)
    for block in tuple(named[BLOCK]):
        named[KEY] += [BEFORE.full_hash(block), BEFORE.tail_hash(block)]
    named[KEY] += [key for entry in named[ENTRY] for key, _ in _keys_of(entry)]
    model = solver.small_example(cell.obligation, _preferences(named))
    return list(_told(model, cell, row, named)) if model is not None else []


def _keys_of(entry: Entry) -> Iterator[tuple[Any, Any]]:
    """Keys of the entry's request that the example may be about, with their boundaries."""
    for boundary in (BEFORE.words.column_end(entry), BEFORE.filled(entry), BEFORE.found_at(entry)):
        yield BEFORE.words.key_of(entry, boundary), boundary


def _preferences(named: dict[Kind, list[Any]]) -> Iterator[z3.BoolRef]:
    """What makes an example simpler, most important first."""
    words = BEFORE.words
    for kind in (BLOCK, REQUEST):
        for position, term in enumerate(named[kind]):
            yield from (term == other for other in named[kind][:position])
    for kinds, fields in FIELDS.items():
        for field in fields:
            for choice in _choices(kinds, named):
                value = getattr(BEFORE, field)(*choice)
                if z3.is_bool(value):
                    yield z3.Not(value)
                elif z3.is_int(value):
                    yield value == 0
                elif value.sort() == words.null.sort():
                    yield value == words.null
                elif value.sort() == words.no_key.sort():
                    yield value == words.no_key
                else:
                    yield value == words.nobody
    for entry in named[ENTRY]:
        yield from (entry.column == 0, words.column_start(entry) == 0, words.column_end(entry) == 2)
    for boundary in named[BOUNDARY]:
        yield from (boundary == number for number in (1, 2, 4))


def _choices(kinds: tuple[Kind, ...], named: dict[Kind, list[Any]]) -> Iterator[tuple[Any, ...]]:
    if len(kinds) == 1:
        yield from ((term,) for term in named[kinds[0]])
    else:
        yield from ((one, other) for one in named[kinds[0]] for other in named[kinds[1]])


class _Names:
    """Short names for the elements of an example, in the order in which they are met."""

    def __init__(self, model: z3.ModelRef) -> None:
        self._model = model
        self._names: dict[str, str] = {}
        words = BEFORE.words
        for term, name in ((words.null, "the null block"), (words.no_key, "nothing"), (words.nobody, "nobody")):
            self._names[self._value(term)] = name

    def _value(self, term: Any) -> str:
        return str(self._model.eval(term, model_completion=True))

    def of(self, term: Any) -> str:
        """The name of a term's value; numbers and truth values name themselves."""
        value = self._value(term)
        if z3.is_int(term) or z3.is_bool(term):
            return value
        if value not in self._names:
            letter = str(term.sort())[0].lower()
            number = sum(name[0] == letter and name[1:].isdigit() for name in self._names.values()) + 1
            self._names[value] = f"{letter}{number}"
        return self._names[value]

    def name_keys(self, entry: Entry) -> None:
        """Call keys by the tokens that they stand for."""
        for key, boundary in _keys_of(entry):
            told = f"the first {self.of(boundary)} tokens of {self.of(entry.request)} in group {self.of(entry.group)}"
            self._names.setdefault(self._value(key), told)

    def of_entry(self, entry: Entry) -> str:
        return f"{self.of(entry.request)}, group {self.of(entry.group)}, column {self.of(entry.column)}"

    def of_term(self, term: Any) -> str:
        """The name of a block, a request, a key or an entry."""
        return self.of_entry(term) if isinstance(term, Entry) else self.of(term)


def _told(model: z3.ModelRef, cell: Cell, row: Row, named: dict[Kind, list[Any]]) -> Iterator[str]:
    names = _Names(model)
    for entry in named[ENTRY]:
        names.name_keys(entry)
    given = ", ".join(map(names.of_term, row.arguments))
    yield f"a state in which {cell.action.name}{f' ({given})' if given else ''} breaks: {cell.invariant.statement}"
    columns = []
    for entry in named[ENTRY]:
        words = BEFORE.words
        kind = "recurrent" if names.of(words.recurrent(entry.group)) == "True" else "attention"
        span = f"[{names.of(words.column_start(entry))}, {names.of(words.column_end(entry))})"
        columns.append(f"  column {names.of(entry.column)} of group {names.of(entry.group)} ({kind}) is {span}")
    yield from dict.fromkeys(columns)
    before, after = (dict(_facts(state, names, named)) for state in (BEFORE, row.transition.after))
    yield from (f"  before: {subject} {fact}" for subject, fact in before.items() if fact not in NOTHING)
    yield from (f"  after: {subject} {fact}" for subject, fact in after.items() if fact != before[subject])


def _facts(state: State, names: _Names, named: dict[Kind, list[Any]]) -> Iterator[tuple[str, str]]:
    """The value of each field, by field and element."""
    for kinds, fields in FIELDS.items():
        for field in fields:
            for choice in _choices(kinds, named):
                subject = ", ".join(map(names.of_term, choice))
                value = names.of(getattr(state, field)(*choice))
                if field == "status":
                    value = STATUS_WORDS.get(int(value), value)
                yield f"{field.replace('_', ' ')} of {subject}:", value
