"""Remembers what was computed from a formula: the same few laws are in most obligations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import z3

T = TypeVar("T")


class PerFormula(Generic[T]):
    """A memory by z3's id of the formula. The formula is kept too: z3 gives the id of one that is gone to another."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[z3.BoolRef, T]] = {}

    def of(self, formula: z3.BoolRef, compute: Callable[[], T]) -> T:
        """What `compute` returned for this formula the first time."""
        key = formula.get_id()
        if key not in self._known:
            self._known[key] = (formula, compute())
        return self._known[key][1]
