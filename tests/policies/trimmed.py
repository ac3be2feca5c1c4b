"""A hit list is trimmed to the lower bound instead of being searched again."""

from model.policies.vllm import Vllm028


class Trimmed(Vllm028):
    def accept(self, group, candidate):
        return min(group.hit, candidate)
