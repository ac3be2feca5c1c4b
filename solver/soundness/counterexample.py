"""A failed cell in words: a small state from which the action breaks the invariant."""

from __future__ import annotations

from solver.soundness.cells import Cell, Row


def in_words(cell: Cell, row: Row) -> list[str]:
    return []
