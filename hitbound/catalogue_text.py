"""`hitbound invariants`: the catalogue as a table or as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

from properties.catalogue import EVENTS, INVARIANTS, Invariant, Kind, Sometimes, Status

SCHEMA = "hitbound-invariants/1"

_MEANINGS = {
    Kind.SAFETY: "must always hold",
    Kind.PROTOCOL: "how core and connectors talk; reported, not required",
    Kind.COMPLETENESS: "the price of being too careful",
}


def as_json() -> str:
    """The catalogue as one JSON document."""
    entries = [_invariant(entry) for entry in INVARIANTS.values()] + [_event(event) for event in EVENTS.values()]
    return json.dumps({"schema": SCHEMA, "invariants": entries}, indent=2, ensure_ascii=False) + "\n"


def as_text(width: int) -> str:
    """The catalogue for reading: what must hold, then what has to happen in a run."""
    lines: list[str] = []
    for kind, meaning in _MEANINGS.items():
        lines.append(f"{kind.value}: {meaning}")
        for entry in INVARIANTS.values():
            if entry.kind is kind:
                lines += _entry(entry, width)
        lines.append("")
    lines.append("sometimes: has to happen in a run, else the run shows nothing about what follows")
    for event in EVENTS.values():
        lines += _paragraphs(event.id, [event.statement, f"applies to {event.applies_to}"], width)
    waiting = [entry.id for entry in INVARIANTS.values() if entry.status is Status.WAITS]
    checked = len(INVARIANTS) - len(waiting)
    lines += ["", f"{checked} invariants are checked, {len(waiting)} wait, {len(EVENTS)} events are watched for"]
    return "\n".join(lines)


def _entry(entry: Invariant, width: int) -> Iterator[str]:
    number = f" ({entry.number})" if entry.number else ""
    waits = [f"waits for {entry.waits_for}"] if entry.waits_for else []
    reports = [f"reports: {', '.join(entry.reports)}"] if entry.reports else []
    checked = [f"checked by {entry.checked_by}"] if entry.checked_by else []
    proof = [f"proof: {entry.proof}"] if entry.proof else []
    title = f"{entry.id}{number} {entry.status.value}"
    yield from _paragraphs(title, [entry.statement, entry.reason, *checked, *proof, *waits, *reports], width)


def _paragraphs(title: str, paragraphs: list[str], width: int) -> Iterator[str]:
    yield f"  {title}"
    for paragraph in paragraphs:
        yield from textwrap.wrap(paragraph, width, initial_indent="      ", subsequent_indent="      ")


def _invariant(entry: Invariant) -> dict[str, Any]:
    return {
        "id": entry.id,
        "number": entry.number or None,
        "kind": entry.kind.value,
        "status": entry.status.value,
        "statement": entry.statement,
        "reason": entry.reason,
        "reports": list(entry.reports),
        "proof": entry.proof or None,
        "checked_by": entry.checked_by or None,
        "waits_for": entry.waits_for or None,
    }


def _event(event: Sometimes) -> dict[str, Any]:
    return {
        "id": event.id,
        "kind": Kind.SOMETIMES.value,
        "status": Status.CHECKED.value,
        "statement": event.statement,
        "applies_to": event.applies_to,
    }
