"""Judges observations by the catalogue: everything that is violated, not only the first."""

from __future__ import annotations

from collections.abc import Collection

from model.system import Observation
from properties.catalogue import EVENTS, INVARIANTS
from properties.invariant import Violation


def violations(observation: Observation, of: Collection[str] = INVARIANTS) -> tuple[Violation, ...]:
    """All violations of the invariants `of` that one observation shows, in that order."""
    return tuple(
        Violation(invariant.id, case, message)
        for invariant in map(INVARIANTS.__getitem__, of)
        if invariant.predicate is not None
        for case, message in invariant.predicate(observation)
    )


def events(observation: Observation, of: Collection[str] = EVENTS) -> frozenset[str]:
    """Ids of the events `of` that one observation shows."""
    return frozenset(name for name in of if EVENTS[name].occurs(observation))
