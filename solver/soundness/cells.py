"""The cells: one obligation for each action and invariant, and one for the initial state and each invariant."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs
import z3

from solver.obligation import Assumption, Obligation, all_of, any_of
from solver.soundness.admitting import ACTIONS as ADMITTING
from solver.soundness.invariants import INVARIANTS, Invariant
from solver.soundness.loading import ACTIONS as LOADING
from solver.soundness.running import ACTIONS as RUNNING
from solver.soundness.state import FIELDS, cardinality_laws, initial_state, symbolic_state
from solver.soundness.stepping import ACTIONS as STEPPING
from solver.soundness.terms import BLOCK, BOUNDARY, ENTRY, KEY, REQUEST, Kind, Terms, Universal, numbers_of
from solver.soundness.transition import Action, Transition
from solver.soundness.vocabulary import (
    BLOCK_SORT,
    GROUP_SORT,
    KEY_SORT,
    REQUEST_SORT,
    SYMBOLIC,
    Entry,
    Term,
    laws_of,
)

ACTIONS = (*ADMITTING, *RUNNING, *LOADING, *STEPPING)


BEFORE = symbolic_state(SYMBOLIC)
"""The arbitrary state in which every action starts."""


def stands_at(entry: Entry) -> tuple[Term, ...]:
    """Boundaries that the state knows of an entry."""
    return BEFORE.settled(entry.request), BEFORE.since(entry.request), BEFORE.filled(entry), BEFORE.found_at(entry)


BASE = (*laws_of(SYMBOLIC, stands_at), *cardinality_laws(BEFORE))
"""What holds of every state by what its words mean."""


INITIALLY = Action("initially", (), lambda _: Transition((), initial_state(SYMBOLIC)), "the engine starts")
"""The initial state as an action that nothing precedes."""


@attrs.frozen(eq=False)
class Cell:
    """One action keeps one invariant. `touched` is false if the action changes nothing that the invariant speaks of."""

    action: Action
    invariant: Invariant
    obligation: Obligation
    touched: bool


@attrs.frozen(eq=False)
class Row:
    """One action from an arbitrary state: what may be assumed, and the terms of which it is assumed."""

    action: Action
    arguments: tuple[Any, ...]
    transition: Transition
    terms: Terms
    assumptions: tuple[Assumption, ...]

    def cell(self, invariant: Invariant) -> Cell:
        """The obligation that the action keeps `invariant`."""
        choice = unknowns(invariant.variables, "any")
        goal = invariant.holds(self.transition.after, *choice)
        title = f"{self.action.name} keeps: {invariant.name}"
        touched = not goal.eq(invariant.holds(BEFORE, *choice))
        return Cell(self.action, invariant, Obligation(title, self.assumptions, goal), touched)

    @property
    def changes(self) -> z3.BoolRef:
        """The action makes some difference."""
        after = self.transition.after
        return any_of(
            getattr(after, field)(*choice) != getattr(BEFORE, field)(*choice)
            for kinds, fields in FIELDS.items()
            for field in fields
            if getattr(after, field) is not getattr(BEFORE, field)
            for choice in self.terms.choices(kinds)
        )


ONE_OF_EACH = (BLOCK, ENTRY, REQUEST, KEY)
"""The variables of most invariants are among these."""

TWO_OF_SOME = (BLOCK, BLOCK, ENTRY, ENTRY, REQUEST, KEY)
"""Those of the invariants that are about two entries or two blocks."""

TWO_BOUNDARIES = (BLOCK, ENTRY, BOUNDARY, BOUNDARY)
"""Those of the one that is about two boundaries in a column."""


def variables_for(invariant: Invariant) -> tuple[Kind, ...]:
    """Which of these the invariant needs: fewer variables make smaller obligations."""
    if BOUNDARY in invariant.variables:
        return TWO_BOUNDARIES
    several = any(invariant.variables.count(kind) > 1 for kind in invariant.variables)
    return TWO_OF_SOME if several else ONE_OF_EACH


def row(
    action: Action,
    about: tuple[Kind, ...] = ONE_OF_EACH,
    invariants: tuple[Invariant, ...] = INVARIANTS,
    more: Mapping[Kind, tuple[Any, ...]] = MappingProxyType({}),
) -> Row:
    """The obligations about one action and invariants with variables `about`. Every invariant is assumed before it, of
    the action's arguments, of the variables and `more`, and of who writes or loads their blocks."""
    arguments = unknowns(action.arguments, "the")
    transition = action.of(BEFORE, *arguments)
    variables = zip(about, unknowns(about, "any"), strict=True)
    terms = _terms((*zip(action.arguments, arguments, strict=True), *variables), transition, more)
    statements = (*BASE, *(invariant.of(BEFORE) for invariant in invariants))
    own = (*transition.guards, *transition.choices)
    assumptions = (
        *(Assumption(statement.name, _instances(statement, terms)) for statement in statements),
        *(Assumption(statement.name, statement.at(terms)) for statement in own),
    )
    return Row(action, arguments, transition, terms, assumptions)


def unknowns(kinds: tuple[Kind, ...], whose: str) -> tuple[Any, ...]:
    """Unknowns of these kinds; the same for the same kinds, so that formulas about them are made once."""
    found: list[Any] = []
    for position, kind in enumerate(kinds):
        number = kinds[:position].count(kind)
        found.append(_unknown(kind, f"{whose} {'other ' * number}"))
    return tuple(found)


@functools.cache
def _unknown(kind: Kind, whose: str) -> Any:
    if kind is ENTRY:
        request, group = z3.Const(f"{whose}request", REQUEST_SORT), z3.Const(f"{whose}group", GROUP_SORT)
        return Entry(request, group, z3.Int(f"{whose}column"))
    sorts = {BLOCK: BLOCK_SORT, REQUEST: REQUEST_SORT, KEY: KEY_SORT, BOUNDARY: z3.IntSort()}
    return z3.Const(f"{whose}{kind.value}", sorts[kind])


def _terms(given: tuple[tuple[Kind, Any], ...], transition: Transition, more: Mapping[Kind, tuple[Any, ...]]) -> Terms:
    terms = Terms({kind: tuple(term for of, term in given if of is kind) for kind in Kind})
    terms = terms.with_more(transition.terms).with_more(more)
    blocks = terms.of(BLOCK)
    named = [entry for b in blocks for entry in (BEFORE.writer_entry(b), BEFORE.loader(b), *transition.entries_of(b))]
    hashes = [key for b in blocks for key in (BEFORE.full_hash(b), BEFORE.tail_hash(b), BEFORE.saved_key(b))]
    terms = terms.with_more({ENTRY: tuple(named), KEY: tuple(hashes)})
    return terms.with_more({REQUEST: tuple(entry.request for entry in terms.of(ENTRY))})


_KNOWN: dict[tuple[str, tuple[int, ...]], tuple[z3.BoolRef, tuple[Any, ...]]] = {}


def _instances(statement: Universal, terms: Terms) -> z3.BoolRef:
    """The statement at `terms`; each instance is made once."""
    return all_of(_instance(statement, choice) for choice in terms.choices(statement.variables))


def _instance(statement: Universal, choice: tuple[Any, ...]) -> z3.BoolRef:
    key = statement.name, tuple(number for term in choice for number in numbers_of(term))
    if key not in _KNOWN:
        _KNOWN[key] = statement.formula(*choice), choice
    return _KNOWN[key][0]
