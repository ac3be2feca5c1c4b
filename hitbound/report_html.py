"""The report as one HTML file that needs nothing else: verdicts, and each violating run to be stepped through."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import jinja2

from hitbound import __version__
from hitbound.changes import change_lines
from hitbound.examples import runs_of
from hitbound.exit_codes import ExitCode
from hitbound.judgement import Judgement
from hitbound.matrix import CLASS_WORDS, ORDER_WORDS, column_words, headline, matrix_of, named
from hitbound.report import Report
from hitbound.report_text import cell_word, exit_line, limits_of
from hitbound.source_lines import deciding_lines
from hitbound.trace_page import TraceView, trace_view
from model.configuration import ConfigurationClass, WorkerOrder
from model.connector import Contract
from model.policy import Policy
from properties.verdict import Cell

TEMPLATES = Path(__file__).with_name("templates")


@attrs.frozen
class Row:
    """One required verdict, or several that were reached alike."""

    word: str
    property: str
    engine: str
    where: str
    reason: str
    missed: bool
    reached: bool


@attrs.frozen
class TracePart:
    """One run that violates something. Its address is `id`, that of its steps `id`-step-n."""

    id: str
    heading: str
    reasons: tuple[str, ...]
    decided: tuple[str, ...]
    view: TraceView


@attrs.frozen
class PolicyPart:
    """What the page says of one policy; `matrix` has a row of words per contract."""

    name: str
    headline: str
    changes: tuple[str, ...]
    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    matrix: tuple[tuple[str, tuple[str, ...]], ...]
    limits: tuple[str, ...]
    traces: tuple[TracePart, ...]


def to_html(report: Report) -> str:
    """The text of the page."""
    parts = [_policy(report, number, policy) for number, policy in enumerate(report.policies, 1)]
    return render(
        "report.html",
        report=report,
        version=__version__,
        passed=report.code is ExitCode.REACHED,
        exit_line=exit_line(report),
        nothing_required=not any(judgement.required for judgement in report.judgements),
        policies=parts,
    )


def render(template: str, **values: Any) -> str:
    """A template of ours with these values, escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    return environment.get_template(f"{template}.template").render(**values)


def _policy(report: Report, number: int, policy: Policy) -> PolicyPart:
    judgements = report.of(policy)
    matrix = matrix_of(judgements)
    columns = [(order, kind) for order in WorkerOrder for kind in ConfigurationClass]
    return PolicyPart(
        name=policy.name,
        headline=headline(judgements),
        changes=tuple(change_lines(report.changes_of(policy))),
        rows=tuple(_rows(report, judgements)),
        columns=tuple(f"{ORDER_WORDS[order]}, {CLASS_WORDS[kind]}" for order, kind in columns),
        matrix=tuple(
            (contract.name.lower(), tuple(cell_word(matrix, Cell(contract, *column)) for column in columns))
            for contract in Contract
            if matrix.cells
        ),
        limits=tuple(limits_of(judgements)) if matrix.cells else (),
        traces=tuple(
            _trace(policy, examples, f"policy-{number}-trace-{index}")
            for index, examples in enumerate(runs_of(judgements), 1)
        ),
    )


def _rows(report: Report, judgements: tuple[Judgement, ...]) -> Iterator[Row]:
    reached: dict[tuple[str, str], list[str]] = {}
    for judgement in judgements:
        result = judgement.result
        if not judgement.required:
            continue
        if report.missed(judgement) or judgement.known:
            where = f"{result.cell.contract.name.lower()}; {column_words(result.cell)}" if result.cell else ""
            missed = report.missed(judgement)
            yield Row(judgement.word, named(judgement), result.engine, where, judgement.reason, missed, False)
        else:
            reached.setdefault((judgement.word, result.engine), []).append(named(judgement))
    for (word, engine), names in reached.items():
        yield Row(word, ", ".join(dict.fromkeys(names)), engine, "", "", False, True)


def _trace(policy: Policy, examples: tuple[Judgement, ...], name: str) -> TracePart:
    trace = examples[0].result.trace
    assert trace is not None
    lines = [line for example in examples for line in deciding_lines(policy, example.result.property)]
    return TracePart(
        id=name,
        heading=", ".join(f"{named(example)} {example.word}" for example in examples),
        reasons=tuple(f"{example.result.property}: {example.reason}" for example in examples),
        decided=tuple(dict.fromkeys(lines)),
        view=trace_view(trace, policy, name),
    )
