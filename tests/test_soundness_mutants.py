"""Faults of the cache: each guard that is dropped makes a cell of the soundness proof fail."""

from __future__ import annotations

import pytest
import z3

from solver.soundness.cells import row, variables_for
from solver.soundness.deciding import RowSolver
from solver.soundness.invariants import INVARIANTS
from tests.soundness_mutants import FAULTS, Fault

pytestmark = pytest.mark.mutants


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_dropped_guard_is_noticed(fault: Fault) -> None:
    (fallen,) = (invariant for invariant in INVARIANTS if invariant.name == fault.falls)
    assumed = tuple(invariant for invariant in INVARIANTS if invariant.name not in fault.dropped)
    assert len(assumed) == len(INVARIANTS) - len(fault.dropped)
    built = row(fault.action, variables_for(fallen), assumed)
    assert RowSolver(built).example(z3.Not(built.cell(fallen).obligation.goal)) == z3.sat
