"""A diverged hit stays when no external tokens back it."""

from model.policies.vllm import Vllm028


class NoFallback(Vllm028):
    def settle(self, L, diverged, asked, E, summary, N):
        if E > L - asked:
            return asked, E
        return L, 0
