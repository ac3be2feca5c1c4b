"""Judges observations by the catalogue: everything that is violated, not only the first."""

from __future__ import annotations

from model.system import Observation
from properties.catalogue import EVENTS, INVARIANTS
from properties.invariant import Violation


def violations(observation: Observation) -> tuple[Violation, ...]:
    """All violations of all invariants that one observation shows, in the order of the catalogue."""
    return tuple(
        Violation(invariant.id, case, message)
        for invariant in INVARIANTS.values()
        if invariant.predicate is not None
        for case, message in invariant.predicate(observation)
    )


def events(observation: Observation) -> frozenset[str]:
    """Ids of the events of kind SOMETIMES that one observation shows."""
    return frozenset(name for name, event in EVENTS.items() if event.occurs(observation))
