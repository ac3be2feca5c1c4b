"""Finite instantiation: statements about everything, and the few terms of which an obligation uses them."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import z3

from solver.obligation import all_of


class Kind(enum.Enum):
    """What a variable of a statement, or an argument of an action, stands for."""

    BLOCK = "block"
    ENTRY = "entry"
    REQUEST = "request"
    KEY = "key"
    BOUNDARY = "boundary"


BLOCK, ENTRY, REQUEST, KEY, BOUNDARY = Kind


@attrs.frozen(eq=False)
class Universal:
    """A statement about every choice of its variables; without variables, a plain one."""

    name: str
    variables: tuple[Kind, ...]
    formula: Callable[..., z3.BoolRef]

    def at(self, terms: Terms) -> z3.BoolRef:
        """Its instances at `terms`: weaker than the statement, so it is safe to assume where the statement holds."""
        return all_of(self.formula(*choice) for choice in terms.choices(self.variables))


@attrs.frozen(eq=False)
class Terms:
    """The terms that statements are used of, by kind."""

    by_kind: Mapping[Kind, tuple[Any, ...]]

    def choices(self, kinds: tuple[Kind, ...]) -> Iterator[tuple[Any, ...]]:
        """Every way to choose terms of these kinds."""
        return itertools.product(*(self.by_kind.get(kind, ()) for kind in kinds))

    def of(self, kind: Kind) -> tuple[Any, ...]:
        return self.by_kind.get(kind, ())

    def with_more(self, more: Mapping[Kind, tuple[Any, ...]]) -> Terms:
        """These terms and more, each once."""
        kinds = dict.fromkeys((*self.by_kind, *more))
        return Terms({kind: _once((*self.of(kind), *more.get(kind, ()))) for kind in kinds})


def _once(terms: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple({numbers_of(term): term for term in terms}.values())


def numbers_of(term: Any) -> tuple[int, ...]:
    """What tells one term from another: z3's numbers of its parts."""
    parts = (term,) if isinstance(term, z3.ExprRef) else attrs.astuple(term)
    return tuple(part.get_id() for part in parts)
