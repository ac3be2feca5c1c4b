"""A composite without children claims."""

from model.policies.vllm import Vllm028


class EmptyClaims(Vllm028):
    claim_start = True

    def claim_step(self, acc, child):
        return acc and child.claims
