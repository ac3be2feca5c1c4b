"""The report as text: a headline per policy, its matrix, a reason per red cell, and the traces."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from hitbound.examples import Examples, examples_of, numbers_of
from hitbound.exit_codes import PRECEDENCE
from hitbound.judgement import Judgement
from hitbound.matrix import CLASS_WORDS, ORDER_WORDS, Matrix, column_words, headline, matrix_of, named
from hitbound.report import Report
from hitbound.trace_text import trace_text
from hitbound.wrapping import wrapped
from model.configuration import ConfigurationClass, WorkerOrder
from model.connector import Contract
from model.policy import Policy
from properties.verdict import Cell, Verdict

CLAUSE = "contract: "
"""How a proof's assumptions begin that are clauses of the leaf contract."""

COLUMN = 21
"""Characters of a column of the matrix."""

SIZES = "for any sizes; hits may end in partial tails where a Mamba block is wider than the hash unit"


def report_text(report: Report, width: int) -> str:
    """Everything about each policy, then what the exit code means."""
    lines: list[str] = []
    for policy in report.policies:
        lines += [*_policy(policy, report.of(policy), width), ""]
    return "\n".join([*lines, *wrapped(exit_line(report), width)])


def exit_line(report: Report) -> str:
    """What the exit code means."""
    return f"exit code {report.code.value}: {dict(PRECEDENCE)[report.code]}"


def _policy(policy: Policy, judgements: tuple[Judgement, ...], width: int) -> Iterator[str]:
    yield from wrapped(f"{policy.name}: {headline(judgements)}", width)
    examples = examples_of(judgements)
    matrix = matrix_of(judgements)
    if matrix.cells:
        yield ""
        yield from matrix_lines(matrix, width)
        yield from (part for line in limits_of(judgements) for part in wrapped(f"  {line}", width))
        yield from (part for reason in _reasons(matrix, examples) for part in wrapped(reason, width))
    yield ""
    yield from _others(judgements, examples, width)
    yield from (part for line in events_of(judgements) for part in wrapped(f"  {line}", width))
    for number, example in enumerate(examples.values(), 1):
        if example.result.trace is not None:
            yield ""
            yield f"trace {number}: {named(example)}"
            lines = trace_text(example, policy, width - 2)
            yield from ("  " + line for line in lines)


def matrix_lines(matrix: Matrix, width: int) -> Iterator[str]:
    """The matrix as a table, a row per class and contract; on a width that is too narrow, one line per cell."""
    margin = max(len(words) for words in CLASS_WORDS.values()) + 2
    if width < 2 + margin + 10 + len(WorkerOrder) * COLUMN:
        for where in matrix.cells:
            line = f"  {where.contract.name.lower()}; {column_words(where)}: {cell_word(matrix, where)}"
            yield from wrapped(line, width)
        return
    yield (
        f"  {'class':<{margin}}{'contract':<10}"
        + "".join(ORDER_WORDS[order].ljust(COLUMN) for order in WorkerOrder).rstrip()
    )
    for configuration_class, contract in itertools.product(ConfigurationClass, Contract):
        class_words = CLASS_WORDS[configuration_class] if contract is min(Contract) else ""
        words = [cell_word(matrix, Cell(contract, order, configuration_class)) for order in WorkerOrder]
        line = f"  {class_words:<{margin}}{contract.name.lower():<10}" + "".join(word.ljust(COLUMN) for word in words)
        yield line.rstrip()


def cell_word(matrix: Matrix, cell: Cell) -> str:
    """The verdict of one cell, and whether it is required."""
    if cell not in matrix.cells:
        return "-"
    verdict = matrix.verdict(cell)
    word = "proved" if verdict is Verdict.PROVED else verdict.value
    return f"{word} (required)" if matrix.required(cell) else word


def _reasons(matrix: Matrix, examples: Examples) -> Iterator[str]:
    """One reason for all cells that differ only in the contract and fail alike."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for cell in matrix.cells:
        faults = matrix.faults(cell)
        if not faults:
            continue
        reason = next((fault.reason for fault in faults if fault.reason), "no reason given")
        names = ", ".join(dict.fromkeys(named(fault) for fault in faults))
        why = f"{names}: {reason}{_pointer(faults, examples)}"
        alike.setdefault((faults[0].word, column_words(cell), why), []).append(cell.contract.name.lower())
    for (word, column, why), contracts in alike.items():
        yield f"  {word}  {', '.join(contracts)}; {column}: {why}"


def _pointer(faults: Iterable[Judgement], examples: Examples) -> str:
    numbers = numbers_of(faults, examples)
    return f" (as trace {', '.join(map(str, numbers))})" if numbers else ""


def _others(judgements: Iterable[Judgement], examples: Examples, width: int) -> Iterator[str]:
    """Results outside the matrix and required ones in it, those alike on one line."""
    listed = [judgement for judgement in judgements if judgement.required or judgement.result.cell is None]

    def key(judgement: Judgement) -> tuple[str, int, str, str, str]:
        result = judgement.result
        return (result.engine, -judgement.verdict.weakness, judgement.word, result.scope, _because(judgement, examples))

    for (engine, _, word, scope, because), alike in itertools.groupby(sorted(listed, key=key), key=key):
        names = ", ".join(dict.fromkeys(named(judgement) for judgement in alike))
        text = f"  {engine}: {word}  {names}{f' within {scope}' if scope else ''}{because}"
        yield from wrapped(text, width)


def events_of(judgements: Iterable[Judgement]) -> Iterator[str]:
    """How many of the interesting events happened in the runs to which they apply, engine by engine."""
    times: dict[str, dict[str, int]] = {}
    for judgement in judgements:
        result = judgement.result
        if result.detail.get("kind") == "sometimes":
            of_engine = times.setdefault(result.engine, {})
            of_engine[result.property] = of_engine.get(result.property, 0) + int(
                result.detail.get("times", result.detail.get("traces", 0))
            )
    for engine, met in times.items():
        missed = sorted(name for name, count in met.items() if not count)
        rest = f"; never {', '.join(missed)}" if missed else ""
        yield f"{engine} met {len(met) - len(missed)} of {len(met)} events (`sometimes` properties){rest}"


def limits_of(judgements: Iterable[Judgement]) -> Iterator[str]:
    """For which sizes the proof is, and which clauses of the leaf contract it needs: a leaf that breaks one can break
    the claim."""
    required = [judgement for judgement in judgements if judgement.required and judgement.verdict is Verdict.PROVED]
    clauses = dict.fromkeys(name for judgement in required for name in judgement.result.assumes)
    needed = [name.removeprefix(CLAUSE) for name in clauses if name.startswith(CLAUSE)]
    yield SIZES
    if needed:
        yield f"the proof needs of every connector: {'; '.join(needed)}"


def _because(judgement: Judgement, examples: Examples) -> str:
    result = judgement.result
    solvers = f" by {' and '.join(result.solvers)}" if result.solvers else ""
    reason = f": {judgement.reason}" if judgement.reason and judgement.verdict is not Verdict.PROVED else ""
    return f"{solvers}{reason}{_pointer([judgement], examples)}"
