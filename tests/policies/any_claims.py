"""A composite that claims as soon as one child does."""

from model.policies.vllm import Vllm028


class AnyClaims(Vllm028):
    def claim_step(self, acc, child):
        return bool(acc) or child.claims
