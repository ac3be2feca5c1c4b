"""The matrix of cache soundness as a table: a line per invariant, a column per action."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hitbound.state_picture import STATE_LEGEND, state_picture
from hitbound.step_text import numbered
from hitbound.wrapping import wrapped
from properties.verdict import AGREEMENT, Verdict
from solver.soundness.cells import INITIALLY
from solver.soundness.proof import CellFinding, Soundness

if TYPE_CHECKING:
    from solver.soundness.origin import Origin

LETTERS = {
    Verdict.PROVED: "P",
    Verdict.HOLDS_WITHIN: "W",
    Verdict.UNKNOWN: "?",
    Verdict.VACUOUS: "V",
    Verdict.CTI: "C",
    Verdict.VIOLATED: "X",
}
UNTOUCHED = "."


def soundness_text(soundness: Soundness, width: int) -> str:
    """The table, what its columns are, and every cell that is not proved."""
    return "\n".join(_lines(soundness, width))


def _lines(soundness: Soundness, width: int) -> Iterator[str]:
    finding = soundness.finding
    solvers = f" by {' and '.join(finding.solvers)}" if finding.solvers else ""
    shape = f"{len(soundness.actions) - 1} actions and the initial state, {len(soundness.invariants)} invariants"
    yield from wrapped(f"cache soundness: {finding.verdict.value}{solvers}, assuming that {AGREEMENT}", width)
    yield from wrapped(f"  {shape}, {finding.obligations} obligations, for any number of blocks and requests", width)
    yield ""
    names = max(len(invariant.name) for invariant in soundness.invariants) + 2
    columns = [_column(number) for number in range(len(soundness.actions))]
    for digit in range(2):
        yield "  " + " " * names + "".join(column[digit] for column in columns)
    for invariant in soundness.invariants:
        cells = soundness.about(invariant)
        yield f"  {invariant.name.ljust(names)}{''.join(_letter(cell) for cell in cells)}  {invariant.property}"
    yield ""
    legend = ", ".join(f"{_column(number).strip()} {action.name}" for number, action in enumerate(soundness.actions))
    yield from wrapped(f"  {legend}", width)
    letters = "P kept, . untouched by the action, C not inductive, X violated by a run, V cannot happen, ? undecided"
    yield from wrapped(f"  {letters}", width)
    yield ""
    yield "  what decisions take from the cache"
    for name, interface in soundness.interfaces.items():
        yield from wrapped(f"  {interface.verdict.value}  {name}", width)
    yield "  geometry, for all sizes"
    for lemma, found in soundness.geometry.items():
        yield from wrapped(f"  {found.verdict.value}  {lemma.name}", width)
    for cell in soundness.cells.values():
        if cell.verdict is not Verdict.PROVED:
            yield ""
            yield f"  {cell.verdict.value}: {cell.action.name} and the invariant {cell.invariant.name!r}"
            yield from (f"    {line}" for line in cell.finding.reason.splitlines())
            if cell.origin is not None and cell.origin.system is not None:
                yield from (f"    {line}".rstrip() for line in _in_the_model(cell.origin, width - 4))


def _in_the_model(origin: Origin, width: int) -> Iterator[str]:
    """The first state as the model has it, and the run from it that violates the property."""
    assert origin.system is not None
    yield ""
    yield "the first state in the model"
    lines = state_picture(origin.system)
    yield from (f"  {line}" for line in lines)
    if len(lines) > 1:
        yield from wrapped(f"  {STATE_LEGEND}", width)
    if origin.observations:
        yield "from there"
        for number, each in enumerate(origin.observations, 1):
            yield from (f"  {line}" for line in numbered(number, (each,), width - 2))


def _column(number: int) -> str:
    return str(number).rjust(2)


def _letter(cell: CellFinding) -> str:
    if cell.verdict is Verdict.PROVED and not cell.touched and cell.action is not INITIALLY:
        return UNTOUCHED
    return LETTERS[cell.verdict]
