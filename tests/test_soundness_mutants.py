"""Faults of the cache: each guard that is dropped makes a cell of the soundness proof fail."""

from __future__ import annotations

import pytest
import z3

from solver.soundness.cells import ACTIONS, row, variables_for
from solver.soundness.deciding import RowSolver
from solver.soundness.invariants import INVARIANTS
from solver.soundness.transition import Action
from tests.soundness_mutants import FAULTS, IMPLIED, Fault, without_guards

pytestmark = pytest.mark.mutants


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_dropped_guard_is_noticed(fault: Fault) -> None:
    (fallen,) = (invariant for invariant in INVARIANTS if invariant.name == fault.falls)
    assumed = tuple(invariant for invariant in INVARIANTS if invariant.name not in fault.dropped)
    assert len(assumed) == len(INVARIANTS) - len(fault.dropped)
    built = row(fault.action, variables_for(fallen), assumed)
    assert RowSolver(built).example(z3.Not(built.cell(fallen).obligation.goal)) == z3.sat


def _noticed(action: Action, guard: str) -> bool:
    """Whether some cell fails without the guard."""
    changed = without_guards(action.name, guard)
    for variables in {variables_for(invariant) for invariant in INVARIANTS}:
        built = row(changed, variables)
        solver = RowSolver(built)
        cells = [built.cell(invariant) for invariant in INVARIANTS if variables_for(invariant) == variables]
        if any(cell.touched and solver.example(z3.Not(cell.obligation.goal)) != z3.unsat for cell in cells):
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_every_other_guard_is_needed(action: Action) -> None:
    guards = [guard.name for guard in row(action).transition.guards]
    spared = {guard for guard in guards if not _noticed(action, guard)}
    assert spared == {guard for name, guard in IMPLIED if name == action.name}
