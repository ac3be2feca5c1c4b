"""The matrix of cache soundness as results of the common schema."""

from __future__ import annotations

from typing import Any

from properties.verdict import AGREEMENT, CACHE_SOUNDNESS, Result, Verdict
from solver.finding import Finding, combined
from solver.soundness.cells import INITIALLY
from solver.soundness.proof import CellFinding, Soundness

ENGINE = "prove"

GEOMETRY = frozenset({"GEO-BLOCK", "GEO-INTERVAL"})
"""Properties of the lemmas about integers, which assume nothing of the model."""


def soundness_results(soundness: Soundness) -> tuple[Result, ...]:
    """A result for each invariant with its line of the matrix, for each interface and for each lemma."""
    lines = []
    for invariant in soundness.invariants:
        cells = soundness.about(invariant)
        finding = combined(cell.finding for cell in cells)
        detail = {
            "invariant": invariant.name,
            "statement": invariant.statement,
            "cells": {cell.action.name: cell_document(cell) for cell in cells},
        }
        lines.append(_result(invariant.property, finding, detail))
    for name, finding in soundness.interfaces.items():
        detail = {"interface": name, **finding_document(finding)}
        lines.append(_result(CACHE_SOUNDNESS, finding, detail))
    for lemma, finding in soundness.geometry.items():
        lines.append(_result(lemma.about, finding, {"lemma": lemma.name, **finding_document(finding)}))
    return tuple(lines)


def soundness_summary(finding: Finding) -> Result:
    """All of the matrix and its interfaces as one result."""
    return _result(CACHE_SOUNDNESS, finding, {"obligations": finding.obligations})


def _result(property: str, finding: Finding, detail: dict[str, Any]) -> Result:
    return Result(
        property=property,
        engine=ENGINE,
        verdict=finding.verdict,
        required=True,
        assumes=(AGREEMENT,) if finding.verdict is Verdict.PROVED and property not in GEOMETRY else (),
        solvers=finding.solvers,
        reason=finding.reason,
        trace=finding.trace,
        detail=detail,
    )


def cell_document(cell: CellFinding) -> dict[str, Any]:
    """One cell, as JSON values. A cell that holds is not vacuous: the action can happen and changes something."""
    vacuous = cell.verdict is Verdict.VACUOUS
    touched = cell.touched or cell.action is INITIALLY
    return {**finding_document(cell.finding), "vacuous": vacuous, "touched": touched}


def finding_document(finding: Finding) -> dict[str, Any]:
    """Verdict, solvers, and what the proof used."""
    document = {"verdict": finding.verdict.value, "solvers": list(finding.solvers), "core": list(finding.core)}
    if finding.reason:
        document["reason"] = finding.reason
    return document
