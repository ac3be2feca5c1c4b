"""The proof of cache soundness: every action keeps every invariant, and they hold initially. Start reading here.

The state (state.py) is arbitrary: no bound on blocks, requests, groups, entries or tokens. A transition (admitting.py,
running.py, loading.py, stepping.py) gives its guards and the state afterwards. An obligation (cells.py) assumes every
invariant (invariants.py) of a few terms before a transition and asks for one of them, of an arbitrary choice, after it.
By induction the invariants hold after every run. What the decisions take from the cache (interfaces.py) and the laws
about columns (geometry.py) are obligations too.

The transitions are written beside the model, not taken from it. So PROVED here is said of the encoding, and agreement
tests tie the encoding to the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs
import z3

from properties.verdict import Verdict
from solver.decide import Decided, Decider, Outcome
from solver.finding import Finding, combined, finding_of
from solver.soundness.cells import (
    ACTIONS,
    BEFORE,
    INITIALLY,
    ONE_OF_EACH,
    TWO_BOUNDARIES,
    TWO_OF_SOME,
    Cell,
    Row,
    row,
    unknowns,
    variables_for,
)
from solver.soundness.counterexample import in_words
from solver.soundness.deciding import RowSolver
from solver.soundness.geometry import Lemma, examine_geometry
from solver.soundness.interfaces import INTERFACES, Interface
from solver.soundness.invariants import INVARIANTS, Invariant
from solver.soundness.terms import BLOCK
from solver.soundness.transition import Action

if TYPE_CHECKING:
    from solver.soundness.origin import Origin


@attrs.frozen(eq=False)
class CellFinding:
    """What was found about one cell. `touched` is false if the action changes nothing that the invariant speaks of. A
    cell that fails may be traced to its `origin`."""

    action: Action
    invariant: Invariant
    finding: Finding
    touched: bool
    origin: Origin | None = None

    @property
    def verdict(self) -> Verdict:
        return self.finding.verdict


@attrs.frozen(eq=False)
class Soundness:
    """The matrix: a finding for each action, the initial state included, and each invariant."""

    actions: tuple[Action, ...]
    invariants: tuple[Invariant, ...]
    cells: Mapping[tuple[str, str], CellFinding]
    interfaces: Mapping[str, Finding]
    geometry: Mapping[Lemma, Finding]

    def cell(self, action: str, invariant: str) -> CellFinding:
        return self.cells[action, invariant]

    def about(self, invariant: Invariant) -> tuple[CellFinding, ...]:
        """One line of the matrix."""
        return tuple(self.cells[action.name, invariant.name] for action in self.actions)

    @property
    def verdict(self) -> Verdict:
        return self.finding.verdict

    @property
    def finding(self) -> Finding:
        """All cells, interfaces and lemmas together."""
        cells = (cell.finding for cell in self.cells.values())
        return combined((*cells, *self.interfaces.values(), *self.geometry.values()))


def examine_soundness(
    actions: Sequence[Action] = ACTIONS,
    invariants: Sequence[Invariant] = INVARIANTS,
    interfaces: Sequence[Interface] = INTERFACES,
    progress: Callable[[str], None] = lambda _: None,
) -> Soundness:
    """Decide every cell, and every interface with the actions."""
    cells: dict[tuple[str, str], CellFinding] = {}
    for action in (INITIALLY, *actions):
        progress(f"prove cache soundness: {action.name}")
        for cell in _row_findings(action, tuple(invariants)):
            cells[cell.action.name, cell.invariant.name] = cell
    progress("prove cache soundness: interfaces")
    decided = _interfaces(actions, tuple(invariants), interfaces)
    geometry = examine_geometry(Decider())
    return Soundness((INITIALLY, *actions), tuple(invariants), cells, decided, geometry)


def _interfaces(
    actions: Sequence[Action], invariants: tuple[Invariant, ...], interfaces: Sequence[Interface]
) -> dict[str, Finding]:
    findings: dict[str, Finding] = {}
    for interface in interfaces:
        (action,) = (action for action in actions if action.name == interface.action)
        choice = unknowns(interface.variables, "any")
        reads = {BLOCK: tuple(BEFORE.table(entry) for entry in choice)}
        built = row(action, ONE_OF_EACH, invariants, reads)
        solver = RowSolver(built)
        decided = solver.decide_obligation(interface.obligation(built, choice))
        findings[interface.name] = _vacuity(built, solver) or finding_of(decided)
    return findings


def _row_findings(action: Action, invariants: tuple[Invariant, ...]) -> Iterator[CellFinding]:
    for variables in (ONE_OF_EACH, TWO_OF_SOME, TWO_BOUNDARIES):
        about = [invariant for invariant in invariants if variables_for(invariant) == variables]
        if not about:
            continue
        assumed = () if action is INITIALLY else invariants
        built = row(action, variables, assumed)
        solver = RowSolver(built)
        vacuous = _vacuity(built, solver)
        for invariant in about:
            cell = built.cell(invariant)
            finding = vacuous or _finding(cell, built, solver)
            yield CellFinding(action, invariant, finding, cell.touched)


def _vacuity(built: Row, solver: RowSolver) -> Finding | None:
    """Whether the action cannot happen, or changes nothing when it does."""
    possible = solver.example(built.changes)
    if possible == z3.sat:
        return None
    if possible == z3.unsat:
        return finding_of(Decided(Outcome.VACUOUS, reason="the action cannot happen, or changes nothing"))
    return finding_of(
        Decided(Outcome.UNKNOWN, reason="no state in which the action happens was found within the limit")
    )


def _finding(cell: Cell, built: Row, solver: RowSolver) -> Finding:
    finding = finding_of(solver.decide(cell))
    if finding.verdict is Verdict.CTI:
        return attrs.evolve(finding, reason="\n".join(in_words(cell, built, solver)))
    return finding
