"""One violation of each kind: it stands for those in other cells, of other sizes and from other engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hitbound.judgement import Judgement
from properties.verdict import Verdict

Examples = Mapping[tuple[str, str], Judgement]
"""Property and signature of violations -> one of them."""


def examples_of(judgements: Iterable[Judgement]) -> Examples:
    """The first violation of each kind, those of required results first."""
    violated = [judgement for judgement in judgements if judgement.verdict is Verdict.VIOLATED]
    examples: dict[tuple[str, str], Judgement] = {}
    for judgement in sorted(violated, key=lambda judgement: not judgement.required):
        examples.setdefault((judgement.result.property, judgement.signature), judgement)
    return examples


def by_trace(judgements: Iterable[Judgement]) -> list[tuple[Judgement, ...]]:
    """Examples of required results, those of one run together: what differs is only the property."""
    runs: dict[str, tuple[Judgement, ...]] = {}
    for example in examples_of(judgements).values():
        trace = example.result.trace
        if trace is not None and example.required:
            run = repr((trace.configuration, trace.actions))
            runs[run] = (*runs.get(run, ()), example)
    return list(runs.values())


def numbers_of(judgements: Iterable[Judgement], examples: Examples) -> list[int]:
    """The numbers, from 1, of the examples that stand for these judgements."""
    kinds = list(examples)
    return sorted(
        {kinds.index(kind) + 1 for each in judgements if (kind := (each.result.property, each.signature)) in examples}
    )
