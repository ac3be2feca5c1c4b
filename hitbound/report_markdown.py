"""The report as Markdown, for the summary of a CI job: verdicts in a table, and each kind of violation drawn."""

from __future__ import annotations

from collections.abc import Iterator

from hitbound.changes import change_lines
from hitbound.examples import runs_of
from hitbound.exit_codes import ExitCode
from hitbound.gate_text import drawn_run
from hitbound.judgement import Judgement
from hitbound.matrix import CLASS_WORDS, ORDER_WORDS, column_words, headline, matrix_of, named
from hitbound.report import Report
from hitbound.report_text import cell_word, exit_line, limits_of
from hitbound.trace_text import DRAWN_WIDTH
from model.configuration import ConfigurationClass, WorkerOrder
from model.connector import Contract
from model.policy import Policy
from properties.verdict import Cell, Verdict


def to_markdown(report: Report) -> str:
    """The text of the document."""
    passed = "passed" if report.code is ExitCode.REACHED else "NOT passed"
    lines = [f"# hitbound: {passed}", "", f"{markdown_text(exit_line(report))}.", ""]
    for policy in report.policies:
        lines += [*_policy(report, policy), ""]
    return "\n".join(lines)


def _policy(report: Report, policy: Policy) -> Iterator[str]:
    judgements = report.of(policy)
    yield f"## {markdown_text(policy.name)}"
    yield ""
    yield f"**{markdown_text(headline(judgements))}**"
    yield ""
    yield from (f"- {markdown_text(line)}" for line in change_lines(report.changes_of(policy)))
    yield from _verdicts(report, judgements)
    yield from _matrix(judgements)
    for number, examples in enumerate(runs_of(judgements), 1):
        names = ", ".join(f"{named(example)} {example.word}" for example in examples)
        yield ""
        yield f"### Run {number}: {markdown_text(names)}"
        yield ""
        yield "```text"
        yield from drawn_run(policy, examples, DRAWN_WIDTH)
        yield "```"


def _verdicts(report: Report, judgements: tuple[Judgement, ...]) -> Iterator[str]:
    """What was not reached in full; what was, in one line per engine and verdict."""
    required = [judgement for judgement in judgements if judgement.required]
    yield ""
    yield "| verdict | property | engine | where | reason |"
    yield "|---|---|---|---|---|"
    reached: dict[tuple[str, str], list[str]] = {}
    for judgement in required:
        if report.missed(judgement) or judgement.known:
            result = judgement.result
            where = f"{result.cell.contract.name.lower()}; {column_words(result.cell)}" if result.cell else ""
            mark = "" if judgement.known else "❌ "
            cells = (f"{mark}{judgement.word}", named(judgement), result.engine, where, judgement.reason)
            yield f"| {' | '.join(map(markdown_text, cells))} |"
        else:
            reached.setdefault((judgement.word, judgement.result.engine), []).append(named(judgement))
    for (word, engine), names in reached.items():
        yield f"| {word} | {markdown_text(', '.join(dict.fromkeys(names)))} | {engine} | | |"
    if not required:
        yield f"| ❌ {Verdict.VACUOUS.value} | nothing was required | | | |"


def _matrix(judgements: tuple[Judgement, ...]) -> Iterator[str]:
    matrix = matrix_of(judgements)
    if not matrix.cells:
        return
    columns = [(order, kind) for order in WorkerOrder for kind in ConfigurationClass]
    yield ""
    yield f"| contract | {' | '.join(f'{ORDER_WORDS[order]}, {CLASS_WORDS[kind]}' for order, kind in columns)} |"
    yield "|---" * (1 + len(columns)) + "|"
    for contract in Contract:
        words = [cell_word(matrix, Cell(contract, *column)) for column in columns]
        yield f"| {contract.name.lower()} | {' | '.join(words)} |"
    yield ""
    yield from (f"- {markdown_text(line)}" for line in limits_of(judgements))


def markdown_text(text: str) -> str:
    """Text in which Markdown sees no mark-up; in a table, on one line."""
    for character in "\\`*[]<|":
        text = text.replace(character, f"\\{character}")
    return text.replace("\n", " ")
