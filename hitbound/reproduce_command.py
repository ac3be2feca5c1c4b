"""`hitbound reproduce`: which reports are meant, and what the process tells its caller."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from hitbound.corpus import cases
from hitbound.judgement import Judgement
from model.errors import HitboundError
from properties.case_document import Case, read_case
from properties.reproduce import SCOPE, Reproduction, Run
from properties.verdict import Result

SCHEMA = "hitbound-reproduction/1"

ENGINE = "corpus"


class UnknownReport(HitboundError):
    """No case is about the report that was named."""


def chosen(report: str | None, every: bool) -> tuple[Case, ...]:
    """The cases that are meant: all, those of a file, or those about a report; raises UnknownReport."""
    if every:
        return cases()
    if report is None:
        raise UnknownReport("name a report (as 1, vllm#46453 or FILE.json), or use --all")
    if report.endswith(".json"):
        return (read_case(Path(report)),)
    wanted = _plain(report)
    found = tuple(case for case in cases() if wanted in (str(case.number), *map(_plain, case.reports)))
    if not found:
        names = ", ".join(dict.fromkeys(case.name for case in cases()))
        raise UnknownReport(f"{report}: no case is about this report; there are {names}")
    return found


def _plain(report: str) -> str:
    return report.replace(" ", "").lower()


def judgements(reproductions: Sequence[Reproduction]) -> tuple[Judgement, ...]:
    """One required result per case, about the first invariant of the record."""
    return tuple(
        Judgement(
            each.case.after.policy,
            Result(
                property=each.case.violates[0].property,
                engine=ENGINE,
                verdict=each.verdict,
                required=True,
                scope=SCOPE,
                reason="; ".join(each.problems),
                trace=each.case.after.trace,
            ),
        )
        for each in reproductions
    )


def as_json(reproductions: Sequence[Reproduction]) -> str:
    """The text of the JSON document: one result per case."""
    document = {"schema": SCHEMA, "results": [_result(each) for each in reproductions]}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _result(reproduction: Reproduction) -> dict[str, Any]:
    case = reproduction.case
    return {
        "record": case.number,
        "report": case.name,
        "reports": list(case.reports),
        "title": case.title,
        "fault": case.fault.value,
        "evidence": case.evidence.value,
        "assumed": case.assumed or None,
        "functions": list(case.functions),
        "invariants": [expected.property for expected in case.violates],
        "actions": len(case.before.trace.actions),
        "differs": [attrs.asdict(difference) for difference in reproduction.differences],
        "before": reproduction.before.verdict.value,
        "after": reproduction.after.verdict.value,
        "reproduced": reproduction.reproduced,
        "scope": SCOPE,
        "violations": [{"property": each.property, "message": each.message} for each in reproduction.before.violations],
        "admissions": {
            "before": _admissions(reproduction.before),
            "after": _admissions(reproduction.after),
        },
        "problems": list(reproduction.problems),
    }


def _admissions(run: Run) -> list[dict[str, Any]]:
    return [attrs.asdict(admission) for admission in run.replayed.admissions] if run.replayed else []
