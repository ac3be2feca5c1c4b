"""Cache-hit policies that were proposed, or were a first revision: each a difference from a shipped one.

No release has them. The cases of public reports name them, to show what a review had to find.
"""

from __future__ import annotations

from model.policies.vllm import Vllm023, Vllm024, Vllm027, Vllm028
from model.policy import COMMON, GroupView, Summary


class ReferenceGroup(Vllm024):
    """The hit of the first (full-attention) group instead of the deepest (vLLM #48195)."""

    name = "vllm-48195"

    def local(self, summary: Summary) -> tuple[int, bool]:
        return (summary.common if summary.lookup is COMMON else summary.full_attention), False


class DenseMinimum(Vllm023):
    """A group's hit list is trimmed to the candidate instead of looked up again (vLLM #45804)."""

    name = "vllm-45804"

    def accept(self, group: GroupView, candidate: int) -> int:
        return min(candidate, group.hit)


class FirstDivergence(Vllm027):
    """The common lookup if a group lies deeper than attention; a divergent hit stays although nothing is loaded (the
    first revision of vLLM #48425)."""

    name = "vllm-48425-first"

    def settle(self, L: int, diverged: bool, asked: int, E: int, summary: Summary, N: int) -> tuple[int, int]:
        if E > L - asked:
            return asked, E
        return L, 0


class KeepsAttention(Vllm023):
    """The attention hit is kept although a recurrent group has no state there (vLLM #47491)."""

    name = "vllm-47491"

    def accept(self, group: GroupView, candidate: int) -> int:
        return candidate if group.recurrent else group.find(candidate)


class NeverDeeper(Vllm028):
    """The local hit never lies deeper than a group's own, even for a connector that claims (vLLM #54302)."""

    name = "vllm-54302"

    def local(self, summary: Summary) -> tuple[int, bool]:
        return summary.common, False
