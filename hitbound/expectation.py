"""Whether a replayed trace did what was expected of it."""

from __future__ import annotations

from model.trace import Expectation
from properties.replay import Replay


def unmet(expectation: Expectation, replayed: Replay) -> list[str]:
    """What differs from the expectation, in words; nothing if it is met."""
    differences = []
    admitted = {admission.request: admission for admission in reversed(replayed.admissions)}
    for expected in expectation.admissions:
        found = admitted.get(expected.request)
        if found != expected:
            did = f"L = {found.local}, E = {found.external}" if found else "was never admitted"
            differences.append(f"{expected.request}: expected L = {expected.local}, E = {expected.external}; {did}")
    violated = {violation.property for violation in replayed.violations}
    for property in sorted(set(expectation.violates) - violated):
        differences.append(f"{property} should be violated and is not")
    for property in sorted(violated - set(expectation.violates)):
        differences.append(f"{property} is violated and should not be")
    return differences
