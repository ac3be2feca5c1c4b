"""vllm-0.28 in other words: the same decisions, written from scratch and as folds."""

from model.policy import COMMON, PER_GROUP, Answer


class OtherWords:
    claim_start = (False, False)
    choose_start = Answer(unknown=False, tokens=0, asynchronous=False, source=-1)

    def cap(self, N):
        return max(N, 1) - 1

    def accept(self, group, candidate):
        found = group.find(candidate)
        if found < candidate:
            return found
        return candidate

    def claim_step(self, acc, child):
        seen, refused = acc
        return True, refused or not child.claims

    def claim_end(self, acc):
        seen, refused = acc
        return seen and not refused

    def choose_step(self, acc, child_answer):
        if acc.unknown:
            return acc
        if child_answer.unknown:
            return Answer(unknown=True, tokens=0, asynchronous=False, source=-1)
        if acc.tokens == 0:
            return child_answer
        return acc

    def assign(self, E, won):
        if not won:
            return 0
        return E

    def lookup(self, claims):
        if not claims:
            return COMMON
        return PER_GROUP

    def local(self, summary):
        if summary.lookup is PER_GROUP and not summary.deepest > summary.full_attention:
            return summary.full_attention, not summary.shallowest == summary.full_attention
        return summary.common, False

    def ask(self, L, summary):
        return L // summary.scheduler_block * summary.scheduler_block

    def settle(self, L, diverged, asked, E, summary, N):
        tail = L - asked
        if E <= tail:
            if diverged:
                return summary.common, 0
            return L, 0
        return asked, E
