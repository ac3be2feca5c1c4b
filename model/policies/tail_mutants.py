"""Mutants of `reference` where hits may end in partial tails: one part of the tail rule removed or altered each.

The first line of each docstring says what was changed, the second what has to fall.
"""

from __future__ import annotations

from model.policies.reference import Reference
from model.policy import Policy, Summary


class AlignedByCutting(Reference):
    """Asked from the common hit cut to blocks, not from a boundary that is common there (vLLM's rule).

    Falls: HIT-RESUME with E > 0 under *backed*.
    """

    name = "aligned by cutting"

    def ask(self, L: int, summary: Summary) -> int:
        return L - L % summary.scheduler_block


class AskedFromTheTail(Reference):
    """Asked from the local hit, tail and all.

    Falls: GEO-INTERVAL.
    """

    name = "asked from the tail"

    def ask(self, L: int, summary: Summary) -> int:
        return L


class TailKeptBesideTheLoad(Reference):
    """The tail stays, and E less the tail is adopted after it.

    Falls: LOAD-EXACT.
    """

    name = "tail kept beside the load"

    def settle(self, L: int, diverged: bool, asked: int, E: int, summary: Summary, N: int) -> tuple[int, int]:
        if E > L - asked and asked + E < N:
            return L, E - (L - asked)
        return summary.common, 0


class EqualAnswerAdded(Reference):
    """An answer that does not beat the tail is adopted after the tail.

    Falls: LOAD-EXACT.
    """

    name = "answer within the tail added"

    def settle(self, L: int, diverged: bool, asked: int, E: int, summary: Summary, N: int) -> tuple[int, int]:
        if E > L - asked and asked + E < N:
            return asked, E
        return summary.common, E if summary.common + E < N else 0


class TailDroppedWithoutLoad(Reference):
    """Without a load the tail is dropped all the same, by cutting.

    Falls: HIT-RESUME with E = 0.
    """

    name = "tail dropped without a load"

    def settle(self, L: int, diverged: bool, asked: int, E: int, summary: Summary, N: int) -> tuple[int, int]:
        if E > L - asked and asked + E < N:
            return asked, E
        return summary.common - summary.common % summary.scheduler_block, 0


class TailTestDropped(Reference):
    """Any answer replaces the tail, also one that does not beat it.

    Falls: nothing that is safety; REACH is no longer proved.
    """

    name = "tail test dropped"

    def settle(self, L: int, diverged: bool, asked: int, E: int, summary: Summary, N: int) -> tuple[int, int]:
        if E > 0 and asked + E < N:
            return asked, E
        return summary.common, 0


TAIL_MUTANTS: dict[str, Policy] = {
    mutant.name: mutant
    for mutant in (
        AlignedByCutting(),
        AskedFromTheTail(),
        TailKeptBesideTheLoad(),
        EqualAnswerAdded(),
        TailDroppedWithoutLoad(),
    )
}
"""Mutants of which some property falls, with a replayed trace."""

LESS_REACH: Policy = TailTestDropped()
"""As safe as `reference`, but reports less."""

TAIL_FALLS: dict[str, tuple[str, str | None]] = {
    "aligned by cutting": ("HIT-RESUME", "E > 0"),
    "asked from the tail": ("GEO-INTERVAL", None),
    "tail kept beside the load": ("LOAD-EXACT", None),
    "answer within the tail added": ("LOAD-EXACT", None),
    "tail dropped without a load": ("HIT-RESUME", "E = 0"),
}
"""Mutant -> property and case of which prove finds a replayed violation."""
