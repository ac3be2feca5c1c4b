"""What tells one violation from others of the same property in the same cell: how its admission was decided."""

from __future__ import annotations

from model.admission import Decision
from properties.replay import Replay
from properties.verdict import Case, Result


def signature_of(result: Result, replayed: Replay) -> str:
    """Case, lookup, relation of the hits, and everything else that the replay violates. Stable over sizes and names.
    What is not cached or searched has nothing to do with how an admission was decided."""
    if result.case is Case.RELEASE:
        return str(result.case.value)
    parts = [result.case.value] if result.case else []
    decisions = [decision for observation in replayed.observations for decision in observation.decisions]
    if decisions:
        parts += _decision_parts(decisions[-1])
    # Whatever else could have been reached says nothing of how it went wrong.
    others = sorted({violation.property for violation in replayed.violations} - {result.property, "REACH"})
    if others:
        parts.append(f"with {', '.join(others)}")
    return "; ".join(parts)


def _decision_parts(decision: Decision) -> list[str]:
    summary = decision.summary
    parts = [f"{summary.lookup.value.replace('_', '-')} lookup"]
    if decision.diverged:
        parts.append("diverged")
    if summary.lowest_attention < summary.full_attention:
        parts.append("an attention group lags")
    if summary.shallowest < summary.lowest_attention:
        parts.append("a recurrent group lags")
    if summary.deepest > summary.full_attention:
        parts.append("a group is deeper than the reference")
    if decision.answer.asynchronous and decision.external:
        parts.append("asynchronous load")
    return parts
