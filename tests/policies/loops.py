"""Policies that do not end."""

from model.policies.vllm import Vllm028


class LoopsAlways(Vllm028):
    def ask(self, L, summary):
        while True:
            pass


class LoopsOnSymbols(Vllm028):
    def ask(self, L, summary):
        steps = 0
        while steps < L:
            steps -= 1
        return L
