"""`hitbound reproduce` as text: one drawn case, or the table of all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from hitbound import step_text
from hitbound.picture import LEGEND
from hitbound.replay_text import common_prefix, drawn_run
from hitbound.wrapping import wrapped
from properties.case_document import Case, Variant
from properties.reproduce import SCOPE, Reproduction, Run

HEAD = ("record", "report", "fault", "invariants", "actions", "before", "after")


def drawn(reproduction: Reproduction, width: int) -> str:
    """The case, the fix, the trace before and after it, and what was and was not as the record states."""
    case = reproduction.case
    lines = [line for text in _head(case) for line in wrapped(text, width)]
    lines += ["", "the fix"]
    for difference in reproduction.differences:
        lines += wrapped(f"  {difference.field}: {_value(difference.before)} -> {_value(difference.after)}", width)
    first: list[list[str]] = []
    for name, variant, run in _runs(reproduction):
        lines += ["", f"{name} the fix, under {variant.policy}"]
        lines += wrapped(step_text.configuration_line(variant.trace.configuration), width)
        actions = drawn_run(run.replayed, variant.rules, width) if run.replayed else []
        same = common_prefix(actions, first)
        lines += [f" 1. to {same}. as before the fix"] if same else []
        lines += [line for action in actions[same:] for line in action]
        first = first or actions
    lines.append("")
    for name, _, run in _runs(reproduction):
        lines += [line for text in _outcome(name, run) for line in wrapped(text, width)]
    lines += wrapped(_end(reproduction), width)
    return "\n".join(lines)


def table(reproductions: Sequence[Reproduction]) -> str:
    """One line per case, and below the table what is not as stated."""
    lines = in_columns([HEAD, *map(_row, reproductions)])
    wrong = [each for each in reproductions if not each.reproduced]
    lines += [f"{each.case.number} {each.case.name}: {problem}" for each in wrong for problem in each.problems]
    records = {each.case.number for each in reproductions}
    failed = {each.case.number for each in wrong}
    lines.append(f"{len(records - failed)} of {len(records)} records reproduced")
    return "\n".join(lines)


def in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines, each column as wide as its widest cell."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows]


def _row(reproduction: Reproduction) -> tuple[str, ...]:
    case = reproduction.case
    return (
        str(case.number),
        case.name,
        case.fault.value,
        ", ".join(expected.property for expected in case.violates),
        str(len(case.before.trace.actions)),
        reproduction.before.verdict.value,
        reproduction.after.verdict.value,
    )


def _head(case: Case) -> Iterator[str]:
    yield f"record {case.number}, {', '.join(case.reports)}: {case.title}"
    yield f"fault: {case.fault.value}; evidence {case.evidence.value}"
    if case.assumed:
        yield f"assumed: {case.assumed}"
    yield f"in vLLM: {', '.join(case.functions)}"
    yield LEGEND


def _runs(reproduction: Reproduction) -> tuple[tuple[str, Variant, Run], ...]:
    case = reproduction.case
    return ("before", case.before, reproduction.before), ("after", case.after, reproduction.after)


def _outcome(name: str, run: Run) -> Iterator[str]:
    scope = f" ({SCOPE})" if not run.violations else ""
    yield f"{name} the fix: {run.verdict.value}{scope}"
    yield from (f"  {violation.property} violated: {violation.message}" for violation in run.violations)


def _end(reproduction: Reproduction) -> str:
    if reproduction.reproduced:
        return "reproduced: as the record states, before and after the fix"
    return f"not reproduced: {'; '.join(reproduction.problems)}"


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
