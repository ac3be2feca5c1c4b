"""The matrix of a policy: contract x worker order x configuration class, and what may be said of it in one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from hitbound.judgement import Judgement, combined
from model.configuration import ConfigurationClass, WorkerOrder
from properties.verdict import AGREEMENT, ALL_CELLS, CACHE_SOUNDNESS, REQUIRED_CELL, Cell, Verdict, weakest

ENGINE = "prove"

ORDER_WORDS = {
    WorkerOrder.LOAD_BEFORE_COPY: "load before copy",
    WorkerOrder.COPY_BEFORE_LOAD: "copy before load",
}
CLASS_WORDS = {
    ConfigurationClass.ONE_ATTENTION_SPEC: "one attention spec",
    ConfigurationClass.SECOND_ATTENTION_SPEC: "a second attention spec",
    ConfigurationClass.ONE_ATTENTION_SPEC_PARTIAL_TAILS: "one attention spec, partial tails",
    ConfigurationClass.SECOND_ATTENTION_SPEC_PARTIAL_TAILS: "a second attention spec, partial tails",
}


@attrs.frozen
class Matrix:
    """What `prove` found per cell; only cells that it looked at."""

    cells: dict[Cell, tuple[Judgement, ...]]

    def verdict(self, cell: Cell) -> Verdict:
        """As weak as the weakest result in the cell; a proof needs results that say so."""
        return weakest(judgement.verdict for judgement in self.cells.get(cell, ()))

    def required(self, cell: Cell) -> bool:
        """Whether something is required in the cell."""
        return any(judgement.required for judgement in self.cells.get(cell, ()))

    def proved(self, cell: Cell) -> bool:
        return self.verdict(cell) is Verdict.PROVED

    def faults(self, cell: Cell) -> tuple[Judgement, ...]:
        """The results that make the cell what it is, where that is not proved."""
        verdict = self.verdict(cell)
        if verdict is Verdict.PROVED:
            return ()
        return tuple(judgement for judgement in self.cells.get(cell, ()) if judgement.verdict is verdict)


def matrix_of(judgements: Iterable[Judgement]) -> Matrix:
    """The matrix of one policy's judgements."""
    cells: dict[Cell, tuple[Judgement, ...]] = {}
    for judgement in judgements:
        cell = judgement.result.cell
        if judgement.result.engine == ENGINE and cell is not None:
            cells[cell] = (*cells.get(cell, ()), judgement)
    return Matrix(cells)


def column_words(cell: Cell) -> str:
    """Worker order and class of a cell in words."""
    return f"{ORDER_WORDS[cell.worker_order]}, {CLASS_WORDS[cell.configuration_class]}"


def headline(judgements: Sequence[Judgement]) -> str:
    """What was shown of a policy, and not a word more."""
    matrix, verdict = matrix_of(judgements), combined(judgements)
    if verdict == Verdict.PROVED.value and matrix.proved(REQUIRED_CELL):
        said = f"proved for connectors honest to {_proved_words(matrix)}{_assumptions(judgements)}"
    elif decisive := _decisive(judgements, verdict):
        said = f"{verdict}: {', '.join(decisive)}"
    else:
        said = f"{verdict}: nothing was required"
    return "; ".join([said, *_other_cells(matrix)])


def _proved_words(matrix: Matrix) -> str:
    """Contract, worker order and classes of the required cell, and of others as far as they are proved too.

    What is proved for connectors that keep a contract holds for those that keep a stronger one.
    """

    def proved(order: WorkerOrder) -> set[ConfigurationClass]:
        cells = (Cell(REQUIRED_CELL.contract, order, configuration_class) for configuration_class in ConfigurationClass)
        return {cell.configuration_class for cell in cells if matrix.proved(cell)}

    classes = proved(REQUIRED_CELL.worker_order)
    orders = "either worker order" if classes <= proved(WorkerOrder.COPY_BEFORE_LOAD) else "load before copy"
    return f"{REQUIRED_CELL.contract.name.lower()}, {orders}, {_classes_words(classes)}"


def _classes_words(proved: set[ConfigurationClass]) -> str:
    """The classes that are proved beside the required one; less is said where they are no product of two axes."""
    classes = ConfigurationClass
    if proved == set(classes):
        return "one attention spec or more, with or without partial tails"
    if classes.SECOND_ATTENTION_SPEC in proved:
        return "one attention spec or more, no partial tails"
    if classes.ONE_ATTENTION_SPEC_PARTIAL_TAILS in proved:
        return "one attention spec, with or without partial tails"
    return "one attention spec, no partial tails"


def _assumptions(judgements: Iterable[Judgement]) -> str:
    """What is tested or assumed, not proved. The other assumptions are laws of the lookups and the contract, and what
    other results prove."""
    used = {name for judgement in judgements for name in judgement.result.assumes}
    unproved = [name for name in (CACHE_SOUNDNESS, AGREEMENT) if name in used]
    return f", assuming {' and '.join(unproved)}" if unproved else ""


def _other_cells(matrix: Matrix) -> list[str]:
    """How many cells are not proved, by verdict."""
    words = {
        Verdict.VIOLATED: "violated",
        Verdict.CTI: "not inductive",
        Verdict.VACUOUS: "vacuous",
        Verdict.UNKNOWN: "unknown",
        Verdict.HOLDS_WITHIN: "hold within bounds",
    }
    counts = {verdict: sum(matrix.verdict(cell) is verdict for cell in matrix.cells) for verdict in words}
    return [f"{count} of {len(ALL_CELLS)} cells {words[verdict]}" for verdict, count in counts.items() if count]


def _decisive(judgements: Iterable[Judgement], verdict: str) -> list[str]:
    """The required properties whose verdict is the combined one; those that fell short of what was needed, if any."""
    decisive = [judgement for judgement in judgements if judgement.required and judgement.word == verdict]
    short = [judgement for judgement in decisive if not judgement.reached()]
    return list(dict.fromkeys(named(judgement) for judgement in short or decisive))


def named(judgement: Judgement) -> str:
    """The property of a judgement, with its case."""
    result = judgement.result
    return result.property + (f" ({result.case.value})" if result.case else "")
