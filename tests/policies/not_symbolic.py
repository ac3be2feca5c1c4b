"""Code that a proof cannot run on symbolic values."""

from model.policies.vllm import Vllm028


class AsksForInt(Vllm028):
    def ask(self, L, summary):
        if isinstance(L, int):
            return L
        return 0


class IsTrue(Vllm028):
    def settle(self, L, diverged, asked, E, summary, N):
        if E > L - asked:
            return asked, E
        return (summary.common if diverged is True else L), 0


class CountsUp(Vllm028):
    def ask(self, L, summary):
        return sum(1 for _ in range(L))
