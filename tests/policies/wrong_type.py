"""Parts that return values of the wrong type."""

from model.policies.vllm import Vllm028


class FloatCap(Vllm028):
    def cap(self, N):
        return (N - 1) / 1


class LocalWithoutFlag(Vllm028):
    def local(self, summary):
        return summary.common


class LookupByName(Vllm028):
    def lookup(self, claims):
        return "common"
