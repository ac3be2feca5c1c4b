"""vLLM's cache-hit policies by release, each a difference from the newest.

Mirrors `Scheduler.schedule` and `_get_local_prefix_cache_hit` (vllm/v1/core/sched/scheduler.py),
`KVCacheManager.get_computed_blocks_for_connector` (vllm/v1/core/kv_cache_manager.py),
`HybridKVCacheCoordinator.find_longest_cache_hit` (vllm/v1/core/kv_cache_coordinator.py) and `MultiConnector`.
"""

from __future__ import annotations

from collections.abc import Mapping

from model.policy import COMMON, NOTHING, PER_GROUP, UNKNOWN, Answer, Child, GroupView, Lookup, Summary
from model.release import NEWEST, Release, rules_of


class Vllm028:
    """0.28 and later: the divergent lookup only for a connector that claims (vLLM #50344)."""

    name = "vllm-0.28"
    decides_as = ""
    release: Release = NEWEST
    claim_start: bool | None = None
    choose_start = NOTHING

    def cap(self, N: int) -> int:
        return N - 1

    def accept(self, group: GroupView, candidate: int) -> int:
        return group.find(candidate)

    def claim_step(self, acc: bool | None, child: Child) -> bool | None:
        return child.claims if acc is None else acc and child.claims

    def claim_end(self, acc: bool | None) -> bool:
        return acc is True

    def choose_step(self, acc: Answer, child_answer: Answer) -> Answer:
        if acc.unknown or child_answer.unknown:
            return UNKNOWN
        return acc if acc.tokens > 0 else child_answer

    def assign(self, E: int, won: bool) -> int:
        return E if won else 0

    def lookup(self, claims: bool) -> Lookup:
        return PER_GROUP if claims else COMMON

    def local(self, summary: Summary) -> tuple[int, bool]:
        if summary.lookup is COMMON or summary.deepest > summary.full_attention:
            return summary.common, False
        return summary.full_attention, summary.shallowest < summary.full_attention

    def ask(self, L: int, summary: Summary) -> int:
        return L - L % summary.scheduler_block

    def settle(self, L: int, diverged: bool, asked: int, E: int, summary: Summary, N: int) -> tuple[int, int]:
        if E > L - asked:
            return asked, E
        return (summary.common if diverged else L), 0


class Vllm027(Vllm028):
    """0.27: the divergent lookup for any connector (vLLM #48425)."""

    name = "vllm-0.27"

    def lookup(self, claims: bool) -> Lookup:
        return PER_GROUP


class Vllm024(Vllm027):
    """0.24 to 0.26: the deepest hit of any group for any connector; no tail rule, no fallback."""

    name = "vllm-0.24"

    def local(self, summary: Summary) -> tuple[int, bool]:
        return (summary.common if summary.lookup is COMMON else summary.deepest), False

    def ask(self, L: int, summary: Summary) -> int:
        return L

    def settle(self, L: int, diverged: bool, asked: int, E: int, summary: Summary, N: int) -> tuple[int, int]:
        return L, E


class Vllm023(Vllm024):
    """0.23: the common lookup for everyone."""

    name = "vllm-0.23"

    def lookup(self, claims: bool) -> Lookup:
        return COMMON


ERAS: Mapping[str, type[Vllm028]] = {
    "0.23": Vllm023,
    "0.24": Vllm024,
    "0.25": Vllm024,
    "0.26": Vllm024,
    "0.27": Vllm027,
    "0.28": Vllm028,
    "0.29": Vllm028,
    "0.30": Vllm028,
    "0.31": Vllm028,
    "0.32": Vllm028,
    "0.33": Vllm028,
}
"""Release -> what it decides."""


def of_release(release: str) -> Vllm028:
    """The policy of a release, which knows the rules that its scheduler follows beside it."""
    policy = ERAS[release]()
    first = policy.name
    policy.name, policy.release = f"vllm-{release}", rules_of(release)
    policy.decides_as = "" if policy.name == first else first
    return policy
