"""`hitbound reproduce --unaided` as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hitbound.judgement import Judgement
from hitbound.reproduce_text import in_columns
from hitbound.unaided import Hunt, Search
from properties.trace_document import trace_to_document
from properties.verdict import Result

SCHEMA = "hitbound-unaided/1"

HEAD = ("record", "report", "engine", "finds", "budget", "before", "actions", "seconds", "after")


def table(hunts: Sequence[Hunt]) -> str:
    """One line per case; seconds of processor time."""
    found = sum(each.found for each in hunts)
    return "\n".join([*in_columns([HEAD, *map(_row, hunts)]), f"{found} of {len(hunts)} cases found unaided"])


def as_json(hunts: Sequence[Hunt]) -> str:
    """The text of the JSON document: one result per case."""
    return json.dumps({"schema": SCHEMA, "results": list(map(_result, hunts))}, indent=2, ensure_ascii=False) + "\n"


def judgements(hunts: Sequence[Hunt]) -> tuple[Judgement, ...]:
    """One required result per case."""
    return tuple(Judgement(each.case.after.policy, _judged(each)) for each in hunts)


def sought(hunt: Hunt) -> str:
    """The property with its case of E."""
    return hunt.unaided.property + (f" ({hunt.unaided.case.value})" if hunt.unaided.case else "")


def _judged(hunt: Hunt) -> Result:
    return Result(
        property=hunt.unaided.property,
        engine=hunt.unaided.engine.value,
        verdict=hunt.verdict,
        required=True,
        case=hunt.unaided.case,
        scope=hunt.budget,
    )


def _row(hunt: Hunt) -> tuple[str, ...]:
    trace = hunt.before.trace
    return (
        str(hunt.case.number),
        hunt.case.name,
        hunt.unaided.engine.value,
        sought(hunt),
        hunt.budget,
        hunt.before.verdict.value,
        str(len(trace.actions)) if trace else "",
        f"{hunt.before.seconds:.1f}",
        hunt.after.verdict.value,
    )


def _result(hunt: Hunt) -> dict[str, Any]:
    return {
        "record": hunt.case.number,
        "report": hunt.case.name,
        "title": hunt.case.title,
        "engine": hunt.unaided.engine.value,
        "property": hunt.unaided.property,
        "case": hunt.unaided.case.value if hunt.unaided.case else None,
        "budget": hunt.budget,
        "before": _search(hunt.before),
        "after": _search(hunt.after),
        "found": hunt.found,
    }


def _search(search: Search) -> dict[str, Any]:
    return {
        "verdict": search.verdict.value,
        "effort": search.effort,
        "seconds": round(search.seconds, 1),
        "trace": trace_to_document(search.trace) if search.trace else None,
    }
