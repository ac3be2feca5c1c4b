"""A failed cell of cache soundness is traced: to a run of the model that violates the property, or no further."""

from __future__ import annotations

import attrs
import pytest

from hitbound.exit_codes import ExitCode, exit_code
from hitbound.judgement import Judgement
from hitbound.soundness_text import soundness_text
from model.policies import POLICIES
from model.release import NEWEST, Release
from model.rules.loads import Recovery
from model.rules.scheduling import Adoption, Visibility
from model.rules.states import ChunkGuard
from properties.replay import replay
from properties.verdict import Verdict
from solver.soundness.proof import CellFinding, Soundness, examine_soundness
from solver.soundness.results import soundness_results
from solver.soundness.tracing import Aim, traced
from tests.soundness_mutants import FAULTS, Fault

REFERENCE = POLICIES["reference"]

IN_THE_MODEL = {
    "allocate before touch": attrs.evolve(NEWEST, adoption=Adoption.GROUP_BY_GROUP),
    "hit in the same step": attrs.evolve(NEWEST, visibility=Visibility.SAME_STEP),
    "chunk that leaves its column half-way": attrs.evolve(NEWEST, chunk_guard=ChunkGuard.UP_TO_LAST_CACHEABLE),
    "lost step, hashes stay": attrs.evolve(NEWEST, recovery=Recovery.UNNOTICED),
    "lost step, producer stays": attrs.evolve(NEWEST, recovery=Recovery.IN_PLACE),
}
"""Faults of the encoding that are rules of some release in the model."""


def fault_named(name: str) -> Fault:
    return next(fault for fault in FAULTS if fault.name == name)


def failed(fault: Fault) -> Soundness:
    """The column of the changed action; of the cells that fail only the one that the fault names is kept."""
    found = examine_soundness((fault.action,), interfaces=())
    cells = {
        place: cell
        for place, cell in found.cells.items()
        if cell.verdict is Verdict.PROVED or cell.invariant.name == fault.falls
    }
    assert found.cell(fault.action.name, fault.falls).verdict is Verdict.CTI
    return attrs.evolve(found, invariants=tuple(cell.invariant for cell in _of(cells, fault)), cells=cells)


def _of(cells: dict[tuple[str, str], CellFinding], fault: Fault) -> list[CellFinding]:
    return [cell for (action, _), cell in cells.items() if action == fault.action.name]


def cell_after_tracing(fault: Fault, release: Release) -> CellFinding:
    soundness = traced(failed(fault), Aim(REFERENCE, release))
    return soundness.cell(fault.action.name, fault.falls)


@pytest.mark.mutants
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if "touch" in name else pytest.mark.nightly) for name in IN_THE_MODEL],
)
def test_a_fault_that_the_model_has_too_ends_in_a_replayed_run(name: str) -> None:
    fault = fault_named(name)
    cell = cell_after_tracing(fault, IN_THE_MODEL[name])
    assert cell.verdict is Verdict.VIOLATED
    trace = cell.finding.trace
    assert trace is not None
    assert cell.invariant.property in {violation.property for violation in replay(trace, REFERENCE).violations}
    assert "a run of the model violates" in cell.finding.reason


@pytest.mark.slow
@pytest.mark.mutants
def test_a_fault_that_the_model_does_not_have_stays_a_counterexample_to_induction() -> None:
    fault = fault_named("allocate before touch")
    soundness = traced(failed(fault), Aim(REFERENCE, NEWEST))
    cell = soundness.cell("allocate", "lookup stands")
    assert cell.verdict is Verdict.CTI
    assert cell.finding.trace is None
    assert cell.origin is not None
    assert "from this state" in cell.finding.reason
    assert "no run of the model shows it" in soundness_text(soundness, 120)
    results = [Judgement("every policy", result) for result in soundness_results(soundness)]
    assert exit_code(results) is ExitCode.NOT_INDUCTIVE
