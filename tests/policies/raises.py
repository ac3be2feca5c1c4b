"""A policy that raises on inputs that occur."""

from model.policies.vllm import Vllm028


class Raises(Vllm028):
    def settle(self, L, diverged, asked, E, summary, N):
        if E > 3:
            raise ValueError("more than three external tokens")
        return super().settle(L, diverged, asked, E, summary, N)


class Exits(Vllm028):
    def ask(self, L, summary):
        raise SystemExit(0)
