"""Mutants of vllm-0.28: one guard removed or altered each, to see that every engine notices.

The first line of each docstring says what was changed, the second which property has to fall.
"""

from __future__ import annotations

from typing import Any

import attrs

from model.policies.vllm import Vllm028
from model.policy import PER_GROUP, UNKNOWN, Answer, Child, GroupView, Lookup, Policy, Summary


class CapabilityIgnored(Vllm028):
    """Every connector gets the divergent lookup.

    Falls: CAP-MEET, and HIT-RESUME with E > 0 under *backed*.
    """

    name = "capability ignored"

    def lookup(self, claims: bool) -> Lookup:
        return PER_GROUP


class FallbackSkipped(Vllm028):
    """What was asked is adopted, whether or not anything is loaded.

    Falls: HIT-RESUME with E = 0.
    """

    name = "fallback skipped"

    def settle(self, L: int, diverged: bool, asked: int, E: int, summary: Summary, N: int) -> tuple[int, int]:
        return asked, E


class FallbackToLocal(Vllm028):
    """A divergent hit without a load stays where it is; only others are looked up again.

    Falls: HIT-RESUME with E = 0.
    """

    name = "fallback to L"

    def settle(self, L: int, diverged: bool, asked: int, E: int, summary: Summary, N: int) -> tuple[int, int]:
        if E > L - asked:
            return asked, E
        return (L if diverged else summary.common), 0


class DeeperTestDropped(Vllm028):
    """The attention hit is used although another group is deeper.

    Falls: HIT-RESUME with E = 0.
    """

    name = "deeper-than-attention test dropped"

    def local(self, summary: Summary) -> tuple[int, bool]:
        if summary.lookup is not PER_GROUP:
            return summary.common, False
        return summary.full_attention, summary.shallowest < summary.full_attention


class MaximumForAttention(Vllm028):
    """The deepest hit of any group is taken for the attention hit.

    Falls: HIT-COVER with E > 0.
    """

    name = "maximum for the attention hit"

    def local(self, summary: Summary) -> tuple[int, bool]:
        if summary.lookup is not PER_GROUP:
            return summary.common, False
        return summary.deepest, summary.shallowest < summary.deepest


class AnyForAll(Vllm028):
    """A composite claims if any child does.

    Falls: CAP-MEET.
    """

    name = "any() for all()"

    def claim_step(self, acc: bool | None, child: Child) -> bool | None:
        return child.claims if acc is None else acc or child.claims


class EmptyCompositeClaims(Vllm028):
    """A composite without children claims.

    Falls: CAP-MEET, and nothing else.
    """

    name = "empty composite claims"

    def claim_end(self, acc: bool | None) -> bool:
        return acc is not False


class LastLoads(Vllm028):
    """The first answer counts, the last child that answered loads.

    Falls: LOAD-SOURCE.
    """

    name = "first answer with last load"

    def choose_step(self, acc: Answer, child_answer: Answer) -> Answer:
        if acc.unknown or child_answer.unknown:
            return UNKNOWN
        if acc.tokens > 0 and child_answer.tokens > 0:
            return attrs.evolve(acc, source=child_answer.source)
        return acc if acc.tokens > 0 else child_answer


class LosersLoad(Vllm028):
    """Every child is told to load.

    Falls: LOAD-SOURCE.
    """

    name = "losers load"

    def assign(self, E: int, won: bool) -> int:
        return E


class CapN(Vllm028):
    """The whole request may be a hit.

    Falls: HIT-LAST.
    """

    name = "cap N"

    def cap(self, N: int) -> int:
        return N


class ExternalTrimmed(Vllm028):
    """E is aligned down to whole blocks after the connector has promised it.

    Falls: LOAD-EXACT.
    """

    name = "E trimmed"

    def settle(self, L: int, diverged: bool, asked: int, E: int, summary: Summary, N: int) -> tuple[int, int]:
        trimmed = E - E % summary.scheduler_block
        if trimmed > 0:
            return asked, trimmed
        return (summary.common if diverged else L), 0


class ListTrimmed(Vllm028):
    """The reconciling lookup trims each group's hit to the candidate instead of searching again.

    Falls: HIT-MEMBER.
    """

    name = "list trimmed"

    def accept(self, group: GroupView, candidate: int) -> int:
        return min(candidate, group.hit)


class CandidateRaised(Vllm028):
    """A group answers the reconciling lookup with its own hit, whatever the candidate.

    Falls: HIT-SHRINK.
    """

    name = "candidate raised"

    def accept(self, group: GroupView, candidate: int) -> int:
        return group.hit


class DeepestAfterTest(Vllm028):
    """The deepest hit is used once no group is deeper than attention: the same number.

    Equivalent.
    """

    name = "deepest after the test"

    def local(self, summary: Summary) -> tuple[int, bool]:
        L, diverged = super().local(summary)
        return (max(L, summary.deepest) if L > summary.common else L), diverged


class ClaimsCounted(Vllm028):
    """Claims are folded as a pair of flags.

    Equivalent.
    """

    name = "claims as a pair"
    claim_start: Any = (False, True)

    def claim_step(self, acc: Any, child: Child) -> Any:
        return True, acc[1] and child.claims

    def claim_end(self, acc: Any) -> bool:
        return bool(acc[0] and acc[1])


MUTANTS: dict[str, Policy] = {
    mutant.name: mutant
    for mutant in (
        CapabilityIgnored(),
        FallbackSkipped(),
        FallbackToLocal(),
        DeeperTestDropped(),
        MaximumForAttention(),
        AnyForAll(),
        EmptyCompositeClaims(),
        LastLoads(),
        LosersLoad(),
        CapN(),
        ExternalTrimmed(),
        ListTrimmed(),
        CandidateRaised(),
    )
}
"""Mutants of which some required property has to fall."""

EQUIVALENT: dict[str, Policy] = {mutant.name: mutant for mutant in (DeepestAfterTest(), ClaimsCounted())}
"""Mutants that decide as vllm-0.28 does."""

FALLS: dict[str, tuple[str, ...]] = {
    "capability ignored": ("CAP-MEET", "HIT-RESUME"),
    "fallback skipped": ("HIT-RESUME", "HIT-MEMBER", "HIT-AGAIN"),
    "fallback to L": ("HIT-RESUME", "HIT-MEMBER", "HIT-AGAIN"),
    "deeper-than-attention test dropped": ("HIT-RESUME", "HIT-MEMBER"),
    "maximum for the attention hit": ("HIT-COVER",),
    "any() for all()": ("CAP-MEET",),
    "empty composite claims": ("CAP-MEET",),
    "first answer with last load": ("LOAD-SOURCE",),
    "losers load": ("LOAD-SOURCE",),
    "cap N": ("HIT-LAST",),
    "E trimmed": ("LOAD-EXACT",),
    "list trimmed": ("HIT-MEMBER", "HIT-RESUME"),
    "candidate raised": ("HIT-SHRINK",),
}
"""Mutant -> required properties of which prove finds a replayed violation."""
