"""Decides the cells of one action: z3 on all that may be assumed, cvc5 on what turned out to be needed.

The assumptions of an action are told to z3 once. A core is made small by leaving out what can be spared, and the text
that cvc5 reads has the core only: what follows from it follows from all.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import z3

from solver.decide import Z3_RLIMIT, Decided, Outcome, seconded
from solver.obligation import Assumption, Obligation
from solver.per_formula import PerFormula
from solver.soundness.cells import Cell, Row


class RowSolver:
    """z3 with the assumptions of one action."""

    def __init__(self, row: Row) -> None:
        self._solver = z3.SimpleSolver()
        self._solver.set("rlimit", Z3_RLIMIT)
        self._assumptions = row.assumptions
        self._markers = {a.name: z3.Bool(f"use {a.name}") for a in row.assumptions}
        self._assume()

    def _assume(self) -> None:
        for assumption in self._assumptions:
            self._solver.add(z3.Implies(self._markers[assumption.name], assumption.formula))

    def example(self, *more: z3.BoolRef) -> z3.CheckSatResult:
        """Whether the assumptions, and `more`, can hold together."""
        return self._solver.check(*self._markers.values(), *more)

    def decide(self, cell: Cell) -> Decided:
        """The verdict on a cell of this row; that the row is not vacuous is asked once, elsewhere."""
        if not cell.touched and cell.invariant.name in self._markers:
            return _unchanged(cell)
        return self.decide_obligation(cell.obligation)

    def decide_obligation(self, obligation: Obligation) -> Decided:
        """The verdict on an obligation with the assumptions of this row."""
        self._solver.push()
        self._solver.add(z3.Not(obligation.goal))
        answer = self._solver.check(*self._markers.values())
        core = self._minimal_core() if answer == z3.unsat else ()
        self._solver.pop()
        if answer == z3.sat:
            return Decided(Outcome.FAILS)
        if answer == z3.unknown:
            return Decided(Outcome.UNKNOWN, reason=f"z3 reached its limit of {Z3_RLIMIT} resource units")
        return seconded(core, reduced(obligation, core).smtlib)

    def small_example(self, obligation: Obligation, preferences: Iterable[z3.BoolRef]) -> z3.ModelRef | None:
        """An example for which the obligation is false, with as many of the preferences as go together; None if z3
        finds none."""
        self._solver.push()
        self._solver.add(z3.Not(obligation.goal))
        model = self._model()
        for preference in preferences if model is not None else ():
            self._solver.push()
            self._solver.add(preference)
            found = self._model()
            if found is None:
                self._solver.pop()
            else:
                model = found
        self._solver.reset()
        self._assume()
        return model

    def _model(self) -> z3.ModelRef | None:
        found = self._solver.check(*self._markers.values()) == z3.sat
        return self._solver.model() if found else None

    def _minimal_core(self) -> tuple[str, ...]:
        kept = self._core()
        for name in tuple(kept):
            rest = [other for other in kept if other != name]
            if name in kept and self._solver.check(*(self._markers[other] for other in rest)) == z3.unsat:
                kept = self._core()
        return tuple(kept)

    def _core(self) -> list[str]:
        used = {str(marker) for marker in self._solver.unsat_core()}
        return [name for name, marker in self._markers.items() if str(marker) in used]


def _unchanged(cell: Cell) -> Decided:
    """What the action does not touch follows from itself: the same obligation whatever the action."""
    before = Assumption(cell.invariant.name, cell.obligation.goal)
    obligation = Obligation(f"what is not touched keeps: {before.name}", (before,), before.formula)
    return _UNCHANGED.of(before.formula, lambda: seconded((before.name,), obligation.smtlib))


_UNCHANGED: PerFormula[Decided] = PerFormula()


def reduced(obligation: Obligation, core: tuple[str, ...]) -> Obligation:
    """The obligation with no more assumptions than those of `core`."""
    return attrs.evolve(obligation, assumptions=tuple(a for a in obligation.assumptions if a.name in core))
