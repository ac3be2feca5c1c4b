"""The catalogue: every invariant that must hold and every event that runs must reach, by id."""

from __future__ import annotations

from properties.invariant import Invariant, Kind, Setting, Sometimes, Status
from properties.invariants import (
    blocks,
    completeness,
    connector,
    content,
    events_in_flight,
    geometry,
    hit,
    sometimes,
    tail_events,
)

__all__ = ["EVENTS", "INVARIANTS", "Invariant", "Kind", "Setting", "Sometimes", "Status", "applicable_events"]

INVARIANTS: dict[str, Invariant] = {
    entry.id: entry for theme in (hit, content, blocks, connector, geometry, completeness) for entry in theme.ENTRIES
}
"""Id -> invariant, in the order in which they are told."""

EVENTS: dict[str, Sometimes] = {
    entry.id: entry for theme in (sometimes, tail_events, events_in_flight) for entry in theme.ENTRIES
}
"""Id -> event of kind SOMETIMES."""


def applicable_events(setting: Setting) -> frozenset[str]:
    """Events that runs in this setting have to reach. Where a policy cannot be asked, none is excused."""
    return frozenset(name for name, event in EVENTS.items() if _applies(event, setting))


def _applies(event: Sometimes, setting: Setting) -> bool:
    try:
        return event.applies(setting)
    except Exception:
        return True
