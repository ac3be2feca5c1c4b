"""One violation of each kind: it stands for those in other cells, of other sizes and from other engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hitbound.judgement import Judgement
from hitbound.matrix import ENGINE as PROVING_ENGINE
from properties.verdict import Case, Verdict

Examples = Mapping[tuple[str, str], Judgement]
"""Property and signature of violations -> one of them."""


def examples_of(judgements: Iterable[Judgement]) -> Examples:
    """The first violation of each kind, those of required results first."""
    violated = [judgement for judgement in judgements if judgement.verdict is Verdict.VIOLATED]
    examples: dict[tuple[str, str], Judgement] = {}
    for judgement in sorted(violated, key=lambda judgement: not judgement.required):
        examples.setdefault((judgement.result.property, judgement.signature), judgement)
    return examples


def runs_of(judgements: Iterable[Judgement]) -> list[tuple[Judgement, ...]]:
    """One required violation of each property and case, those of one run together.

    The proof's if it has one, which stays the same from run to run; else the chosen.
    """
    chosen: dict[tuple[str, Case], Judgement] = {}
    violated = [judgement for judgement in judgements if judgement.required and judgement.verdict is Verdict.VIOLATED]
    for judgement in sorted(violated, key=_preference):
        result = judgement.result
        chosen.setdefault((result.property, result.case or Case.LOCAL), judgement)
    runs: dict[str, tuple[Judgement, ...]] = {}
    for judgement in chosen.values():
        trace = judgement.result.trace
        if trace is not None:
            run = repr((trace.configuration, trace.actions))
            runs[run] = (*runs.get(run, ()), judgement)
    return list(runs.values())


def _preference(judgement: Judgement) -> tuple[bool, int]:
    trace = judgement.result.trace
    return judgement.result.engine != PROVING_ENGINE, len(trace.actions) if trace is not None else 0


def numbers_of(judgements: Iterable[Judgement], examples: Examples) -> list[int]:
    """The numbers, from 1, of the examples that stand for these judgements."""
    kinds = list(examples)
    return sorted(
        {kinds.index(kind) + 1 for each in judgements if (kind := (each.result.property, each.signature)) in examples}
    )
