"""The report of a gate as text: what fell short, and a run for each, drawn; all else in a line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hitbound.changes import change_lines
from hitbound.examples import runs_of
from hitbound.judgement import Judgement
from hitbound.matrix import headline, matrix_of, named
from hitbound.report import Report
from hitbound.report_text import exit_line, limits_of, matrix_lines
from hitbound.trace_text import trace_text
from hitbound.wrapping import wrapped
from model.policy import Policy
from properties.verdict import Verdict


def gate_text(report: Report, width: int) -> str:
    """Everything about each policy, then what the exit code means."""
    lines = [line for policy in report.policies for line in (*_policy(report, policy, width), "")]
    return "\n".join([*lines, *wrapped(exit_line(report), width)])


def short_text(report: Report, width: int) -> str:
    """The headline of each policy, and what the exit code means."""
    lines = [f"{policy.name}: {headline(report.of(policy))}" for policy in report.policies]
    return "\n".join(part for line in [*lines, exit_line(report)] for part in wrapped(line, width))


def drawn_run(policy: Policy, examples: Sequence[Judgement], width: int) -> Iterator[str]:
    """A run once, with what each property says of it."""
    first, *others = examples
    yield from trace_text(first, policy, width)
    for example in others:
        yield from wrapped(f"{example.result.property} violated: {example.reason}", width)


def _policy(report: Report, policy: Policy, width: int) -> Iterator[str]:
    judgements = report.of(policy)
    yield from wrapped(f"{policy.name}: {headline(judgements)}", width)
    matrix = matrix_of(judgements)
    if matrix.cells:
        yield ""
        yield from matrix_lines(matrix, width)
        yield from (part for line in limits_of(judgements) for part in wrapped(f"  {line}", width))
    yield ""
    for line in (
        *change_lines(report.changes_of(policy)),
        *_fell_short(report, judgements),
        *_reached(report, judgements),
    ):
        yield from wrapped(f"  {line}", width)
    if any(not matrix.required(cell) and not matrix.proved(cell) for cell in matrix.cells):
        yield from wrapped("  `hitbound prove` draws what is violated in cells that are not required", width)
    for number, examples in enumerate(runs_of(judgements), 1):
        yield ""
        yield from wrapped(f"run {number}: {', '.join(named(example) for example in examples)}", width)
        yield from (f"  {line}" for line in drawn_run(policy, examples, width - 2))


def _fell_short(report: Report, judgements: Sequence[Judgement]) -> Iterator[str]:
    """A line per violated property, known ones too, with the first reason; else a line per reason."""
    alike: dict[tuple[str, str], list[Judgement]] = {}
    for judgement in judgements:
        if report.missed(judgement) or judgement.known:
            violated = judgement.verdict is Verdict.VIOLATED
            alike.setdefault((judgement.word, named(judgement) if violated else judgement.reason), []).append(judgement)
    for (word, _), found in alike.items():
        engines = ", ".join(dict.fromkeys(judgement.result.engine for judgement in found))
        names = ", ".join(dict.fromkeys(map(named, found)))
        reason = next((judgement.reason for judgement in found if judgement.reason), "no reason given")
        yield f"{word}  {names} ({engines}): {reason}"


def _reached(report: Report, judgements: Sequence[Judgement]) -> Iterator[str]:
    """A line per engine and verdict."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for judgement in judgements:
        if judgement.required and not report.missed(judgement) and not judgement.known:
            key = (judgement.word, judgement.result.engine, judgement.result.scope)
            alike.setdefault(key, []).append(named(judgement))
    for (word, engine, scope), names in alike.items():
        yield f"{word}  {', '.join(dict.fromkeys(names))} ({engine}{f', {scope}' if scope else ''})"
