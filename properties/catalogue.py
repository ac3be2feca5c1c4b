"""The catalogue: every invariant that must hold and every event that runs must reach, by id."""

from __future__ import annotations

from properties.events import adjustments, hits, in_flight, loads, retention, speculation, tails
from properties.events import blocks as block_events
from properties.events import stores as store_events
from properties.invariant import Invariant, Kind, Setting, Sometimes, Status
from properties.invariants import blocks, completeness, connector, content, geometry, hit

__all__ = ["EVENTS", "INVARIANTS", "Invariant", "Kind", "Setting", "Sometimes", "Status", "applicable_events"]

INVARIANTS: dict[str, Invariant] = {
    entry.id: entry for theme in (hit, content, blocks, connector, geometry, completeness) for entry in theme.ENTRIES
}
"""Id -> invariant, in the order in which they are told."""

EVENTS: dict[str, Sometimes] = {
    entry.id: entry
    for theme in (hits, loads, adjustments, block_events, retention, tails, store_events, in_flight, speculation)
    for entry in theme.ENTRIES
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
