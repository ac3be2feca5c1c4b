"""The repaired policy: safe under every contract and in every configuration class, load before copy."""

from __future__ import annotations

from model.configuration import ConfigurationClass, WorkerOrder
from model.connector import Contract
from model.policies.vllm import Vllm028
from model.policy import COMMON, Summary


class Reference(Vllm028):
    """vllm-0.28 with two independent repairs.

    It diverges only if every attention group has the reference hit and that is a block boundary, so a lagging second
    attention group is never relied on; and it asks from a boundary without a tail that is valid in every group, so a
    connector without the claim finds it backed in every recurrent group.
    """

    name = "reference"
    requires = tuple(
        (contract, WorkerOrder.LOAD_BEFORE_COPY, configuration_class)
        for contract in Contract
        for configuration_class in ConfigurationClass
    )
    at_least = Vllm028()

    def local(self, summary: Summary) -> tuple[int, bool]:
        reference = summary.full_attention
        if summary.lookup is COMMON or summary.deepest > reference or summary.lowest_attention < reference:
            return summary.common, False
        if reference % summary.scheduler_block > 0:
            return summary.common, False
        return reference, summary.shallowest < reference

    def ask(self, L: int, summary: Summary) -> int:
        if L % summary.scheduler_block > 0:
            return summary.aligned_common
        return L

    def settle(self, L: int, diverged: bool, asked: int, E: int, summary: Summary, N: int) -> tuple[int, int]:
        if E > L - asked and asked + E < N:
            return asked, E
        return summary.common, 0
