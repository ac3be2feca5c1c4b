"""The repaired policy: safe under every contract, in either worker order, in every configuration class."""

from __future__ import annotations

from model.configuration import ConfigurationClass, WorkerOrder
from model.connector import Contract
from model.policies.vllm import Vllm028
from model.policy import COMMON, Answer, Summary


class Reference(Vllm028):
    """vllm-0.28 with four independent repairs.

    It diverges only if every attention group has the reference hit and that is a block boundary, so a lagging second
    attention group is never relied on; and it asks from a boundary without a tail that is valid in every group, so a
    connector without the claim finds it backed in every recurrent group. Where the
    worker copies the last state before it has loaded it, a synchronous answer is used only if the request ends in the
    Mamba block of its boundary: then no chunk leaves that block, and nothing is copied; with drafts, whose rows may
    leave it, none is used. And where a load is given up for want of auxiliary outputs, the hit is looked up again, also
    if its tail was dropped for that load.
    """

    name = "reference"
    requires = tuple(
        (contract, worker_order, configuration_class)
        for contract in Contract
        for worker_order in WorkerOrder
        for configuration_class in ConfigurationClass
    )
    at_least = Vllm028()
    greatest = True
    falls_back = True

    def local(self, summary: Summary) -> tuple[int, bool]:
        reference = summary.full_attention
        if summary.lookup is COMMON or summary.deepest > reference or summary.lowest_attention < reference:
            return summary.common, False
        if reference % summary.scheduler_block > 0:
            return summary.common, False
        return reference, summary.shallowest < reference

    def ask(self, L: int, summary: Summary) -> int:
        return L if L > summary.common else summary.aligned_common

    def usable(self, answer: Answer, asked: int, summary: Summary, N: int) -> int:
        block = summary.copied_before_load
        if answer.asynchronous or block == 0:
            return answer.tokens
        if (asked + answer.tokens - 1) // block < (N - 1) // block:
            return 0
        return answer.tokens

    def settle(self, L: int, diverged: bool, asked: int, E: int, summary: Summary, N: int) -> tuple[int, int]:
        if E > L - asked and asked + E < N:
            return asked, E
        return summary.common, 0
