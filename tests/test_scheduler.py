"""What the scheduler of vLLM 0.28.0 did, step by step, and what the model does.

The expected texts were written down from runs of vLLM's own `Scheduler`, release 0.28.0, dense retention, no draft
model, of exactly these scenarios. After some actions `sees` compares three texts: each request with the tokens computed
and its block tables, one per group (`.` is the null block), then who waits and who is skipped over; what is cached, by
group, as boundary, first owner and blocks; the free queue, from the block that is taken next.
"""

from __future__ import annotations

from model.actions import Abort, Action, Arrive, EndLoad, Evict, LeafAnswers, Preempt, Reset, ScriptedAnswer, Step
from model.configuration import Configuration, Eviction, Group, GroupKind
from model.connector import Conduct, Connector, Contract, Leaf, StateRestored
from model.policies import POLICIES
from model.release import RELEASES
from model.request import Request, Status
from model.system import apply, initial
from model.tokens import Segment

ADVERSARIAL = Eviction.ADVERSARIAL
STORE = Leaf("leaf", claims=False, contract=Contract.BACKED)
CLAIMER = Leaf("leaf", claims=True, contract=Contract.ENDPOINT)
BEYOND_RANGE = Leaf(
    "leaf", claims=False, contract=Contract.ENDPOINT, conduct=Conduct(StateRestored.ALWAYS, within_range=False)
)


def full(block: int) -> Group:
    return Group(GroupKind.FULL_ATTENTION, block)


def mamba(block: int) -> Group:
    return Group(GroupKind.MAMBA, block)


def window(block: int, tokens: int) -> Group:
    return Group(GroupKind.SLIDING_WINDOW, block, tokens)


def arrive(name: str, prompt: str, *answers: int | None, output: int = 1, later: bool = False) -> Arrive:
    """A request whose prompt is spelled as in "t4 u2": four tokens of text t, then two of text u. `answers` are what
    the leaf says, one after another; it loads asynchronously if `later`."""
    said = tuple(ScriptedAnswer(tokens, asynchronous=later and bool(tokens)) for tokens in answers)
    segments = tuple(Segment(word[0], int(word[1:])) for word in prompt.split())
    return Arrive(name, segments, (Segment(f"o{name}", output),), (LeafAnswers("leaf", said),) if said else ())


def step(budget: int | None = None) -> Step:
    return Step(budget=budget)


class Run:
    """The model under `vllm-0.28`, driven like the subject was."""

    def __init__(
        self, *groups: Group, pool: int, connector: Connector | None = None, eviction: Eviction = Eviction.LRU
    ) -> None:
        self.system = initial(
            Configuration(groups, pool, budget=100, connector=connector, eviction=eviction, release=RELEASES["0.28"])
        )

    def do(self, *actions: Action) -> None:
        for action in actions:
            self.system, _ = apply(self.system, POLICIES["vllm-0.28"], action)

    def sees(self, requests: str, cached: str, free: str) -> None:
        scheduler = self.system.scheduler
        seen = [_request(request) for request in scheduler.requests.values() if request.tables]
        queues = {"waiting": scheduler.waiting, "skipped": scheduler.skipped}
        seen += [f"{name} {' '.join(queue)}" for name, queue in queues.items() if queue]
        assert "; ".join(seen) == requests
        assert " | ".join(self._cached(group) for group in range(len(self.system.configuration.groups))) == cached
        assert " ".join(map(str, scheduler.pool.free)) == free

    def _cached(self, group: int) -> str:
        cached = self.system.scheduler.pool.cached
        found = sorted(
            (self._owner(label.prefix), len(label.prefix), blocks)
            for label, blocks in cached.items()
            if label.group == group
        )
        return " ".join(f"{boundary}{name}={','.join(map(str, blocks))}" for name, boundary, blocks in found) or "-"

    def _owner(self, prefix: tuple[str, ...]) -> str:
        return next(name for name, text in self.system.texts.items() if text[: len(prefix)] == prefix)


def _request(request: Request) -> str:
    tables = (" ".join(str(block or ".") for block in table) for table in request.tables)
    computed = 0 if request.status is Status.LOAD_FAILED else request.computed
    return f"{request.name} {computed} " + " ".join(f"[{table}]" for table in tables)


def test_a_state_that_was_retired_earlier_is_evicted_before_attention_blocks() -> None:
    run = Run(full(2), mamba(2), pool=9)
    run.do(arrive("a", "t6"), step(2))
    run.sees("a 2 [1] [2]", "2a=1 | 2a=2", "3 4 5 6 7 8")
    run.do(step(2))
    run.sees("a 4 [1 3] [2 4]", "2a=1 4a=3 | 2a=2 4a=4", "5 6 7 8")
    run.do(step(2))
    run.sees("", "2a=1 4a=3 6a=5 | 2a=2 4a=4 6a=6", "7 8 2 5 3 1 6 4")
    run.do(arrive("b", "u5"), step())
    run.sees("b 4 [7 8] [. 2]", "2a=1 4a=3 6a=5 2b=7 4b=8 | 4a=4 6a=6 4b=2", "5 3 1 6 4")


def test_with_a_connector_the_last_retired_state_is_freed_before_the_attention_blocks() -> None:
    run = Run(full(2), mamba(2), pool=9, connector=STORE)
    run.do(arrive("a", "t7"), step(2))
    run.sees("a 2 [1] [2]", "2a=1 | 2a=2", "3 4 5 6 7 8")
    run.do(step(2))
    run.sees("a 4 [1 3] [2 4]", "2a=1 4a=3 | 2a=2 4a=4", "5 6 7 8")
    run.do(step(2))
    run.sees("a 6 [1 3 5] [. 4 6]", "2a=1 4a=3 6a=5 | 2a=2 4a=4 6a=6", "7 8 2")
    run.do(step())
    run.sees("", "2a=1 4a=3 6a=5 | 2a=2 4a=4 6a=6", "8 7 2 4 6 5 3 1")


def test_two_requests_fill_the_same_block_the_oldest_of_duplicates_is_hit() -> None:
    run = Run(full(2), mamba(2), pool=15)
    run.do(arrive("a", "t5", output=2), step(4))
    run.sees("a 4 [1 2] [. 3]", "2a=1 4a=2 | 4a=3", "4 5 6 7 8 9 10 11 12 13 14")
    run.do(arrive("b", "t2 u1", output=2), step())
    run.sees("a 5 [1 2 4] [. 3 5]; b 2 [6] [7]", "2a=1,6 4a=2 | 2a=7 4a=3", "8 9 10 11 12 13 14")
    run.do(arrive("c", "t2 w1", output=2), step())
    run.sees("b 3 [6 8] [7 9]; c 3 [1 10] [7 11]", "2a=1,6 4a=2 6a=4 | 2a=7 4a=3 6a=5", "12 13 14 3 4 2 5")


def test_all_hits_are_referenced_before_a_block_is_taken() -> None:
    run = Run(window(2, 7), full(2), pool=15, connector=STORE)
    run.do(arrive("a", "t4"), step())
    run.sees("", "2a=1 4a=2 | 2a=3 4a=4", "5 6 7 8 9 10 11 12 13 14 2 1 4 3")
    run.do(arrive("b", "u10"), step())
    run.sees(
        "",
        "2a=1 4a=2 2b=5 4b=6 6b=7 8b=8 10b=9 | 2a=3 4a=4 2b=10 4b=11 6b=12 8b=13 10b=14",
        "2 1 4 3 6 5 9 8 7 14 13 12 11 10",
    )
    run.do(arrive("c", "t4 v8", 6, output=2), step())
    run.sees(
        "c 12 [. . 2 1 6 7] [3 4 5 9 8 14]",
        "6c=2 8c=1 10c=6 12c=7 | 2a=3 4a=4 2b=10 4b=11 6b=12 8b=13 6c=5 8c=9 10c=8 12c=14",
        "13 12 11 10",
    )


def test_the_last_admitted_request_is_preempted_and_waits_in_front() -> None:
    run = Run(full(2), mamba(2), pool=13)
    run.do(arrive("a", "a3", output=4), arrive("b", "b3", output=4), arrive("c", "c3", output=4), step())
    run.sees("a 2 [1] [2]; b 2 [3] [4]; c 2 [5] [6]", "2a=1 2b=3 2c=5 | 2a=2 2b=4 2c=6", "7 8 9 10 11 12")
    run.do(arrive("w", "w2"), step())
    run.sees("a 3 [1 7] [2 8]; b 3 [3 9] [4 10]; c 3 [5 11] [6 12]; waiting w", "2a=1 2b=3 2c=5 | 2a=2 2b=4 2c=6", "")
    run.do(step())
    run.sees(
        "a 4 [1 7] [. 8]; b 4 [3 9] [. 10]; c 4 [5 11] [. 12]",
        "2a=1 4a=7 2b=3 4b=9 2c=5 4c=11 2w=2 | 4a=8 4b=10 2c=6 4c=12 2w=4",
        "6 2 4",
    )
    run.do(step())
    run.sees(
        "a 5 [1 7 6] [. 8 2]; b 5 [3 9 4] [. 10 11]; waiting c", "2a=1 4a=7 2b=3 4b=9 2c=5 | 4a=8 4b=10 4c=12", "5 12"
    )
    run.do(step())
    run.sees(
        "c 2 [5] [12]", "2a=1 4a=7 6a=6 2b=3 4b=9 6b=4 2c=5 | 4a=8 6a=2 4b=10 6b=11 2c=12", "8 10 6 7 1 2 4 9 3 11"
    )


def test_two_requests_are_preempted_in_one_step_and_keep_their_order() -> None:
    run = Run(full(1), full(1), mamba(1), pool=17)
    run.do(arrive("a", "a2", output=4), arrive("b", "b2", output=3), arrive("c", "c2", output=3), step())
    run.sees(
        "a 2 [1 2] [3 4] [. 5]; b 2 [6 7] [8 9] [. 10]; c 2 [11 12] [13 14] [. 15]",
        "1a=1 2a=2 1b=6 2b=7 1c=11 2c=12 | 1a=3 2a=4 1b=8 2b=9 1c=13 2c=14 | 2a=5 2b=10 2c=15",
        "16",
    )
    run.do(step())
    run.sees(
        "a 3 [1 2 16] [3 4 12] [. 5 11]; b 3 [6 7 14] [8 9 13] [. 10 15]; waiting c",
        "1a=1 2a=2 3a=16 1b=6 2b=7 3b=14 | 1a=3 2a=4 3a=12 1b=8 2b=9 3b=13 | 2a=5 3a=11 2b=10 3b=15",
        "",
    )
    run.do(step())
    run.sees(
        "a 4 [1 2 16 5] [3 4 12 14] [. . 11 7]; waiting b c",
        "1a=1 2a=2 3a=16 4a=5 1b=6 | 1a=3 2a=4 3a=12 4a=14 1b=8 2b=9 3b=13 | 3a=11 4a=7 2b=10 3b=15",
        "6 13 9 8 15 10",
    )


def test_a_hit_on_a_state_of_this_step_is_put_off_and_what_waits_behind_it() -> None:
    run = Run(full(2), mamba(2), pool=15)
    run.do(arrive("a", "t5", output=2), arrive("b", "t4 u2"), arrive("c", "v2"), step())
    run.sees("a 4 [1 2] [. 3]; waiting b c", "2a=1 4a=2 | 4a=3", "4 5 6 7 8 9 10 11 12 13 14")
    run.do(step())
    run.sees("a 5 [1 2 4] [. 3 5]", "2a=1 4a=2 6b=6 2c=8 | 4a=3 6b=7 2c=9", "10 11 12 13 14 6 7 8 9")


def test_a_state_that_is_promoted_in_this_step_is_put_off_as_well() -> None:
    run = Run(full(2), mamba(2), pool=15, connector=STORE)
    run.do(arrive("a", "t7", 4, output=2, later=True), step(), EndLoad("a"), arrive("b", "t4 u2"), step())
    run.sees("a 6 [1 2 4] [. 3 5]; waiting b", "2a=1 4a=2 6a=4 | 4a=3 6a=5", "6 7 8 9 10 11 12 13 14")
    run.do(step())
    run.sees("a 7 [1 2 4 6] [. . 5 7]", "2a=1 4a=2 6a=4 6b=8 | 4a=3 6a=5 6b=9", "10 11 12 13 14 3 8 9")


def test_a_sliding_window_frees_columns_when_no_later_token_sees_them() -> None:
    run = Run(full(2), window(2, 4), pool=19)
    run.do(arrive("a", "t9", output=3), step(3))
    run.sees("a 3 [1 2] [3 4]", "2a=1 | 2a=3", "5 6 7 8 9 10 11 12 13 14 15 16 17 18")
    run.do(step(3))
    run.sees("a 6 [1 2 5] [3 4 6]", "2a=1 4a=2 6a=5 | 2a=3 4a=4 6a=6", "7 8 9 10 11 12 13 14 15 16 17 18")
    run.do(step(3))
    run.sees("a 9 [1 2 5 7 8] [. 4 6 9 10]", "2a=1 4a=2 6a=5 8a=7 | 2a=3 4a=4 6a=6 8a=9", "11 12 13 14 15 16 17 18 3")
    run.do(step())
    run.sees(
        "a 10 [1 2 5 7 8] [. . . 9 10]",
        "2a=1 4a=2 6a=5 8a=7 10a=8 | 2a=3 4a=4 6a=6 8a=9 10a=10",
        "11 12 13 14 15 16 17 18 3 6 4",
    )
    run.do(step())
    run.sees(
        "", "2a=1 4a=2 6a=5 8a=7 10a=8 | 2a=3 4a=4 6a=6 8a=9 10a=10", "12 11 13 14 15 16 17 18 3 6 4 8 7 5 2 1 10 9"
    )
    run.do(arrive("b", "t9 u2", output=2), step())
    run.sees(
        "b 11 [1 2 5 7 12 11] [. . 6 9 13 14]",
        "2a=1 4a=2 6a=5 8a=7 10a=8 10b=12 | 2a=3 4a=4 6a=6 8a=9 10a=10 10b=13",
        "15 16 17 18 3 4 8 10",
    )


def test_of_a_sliding_window_only_the_tail_of_each_scheduler_block_is_cached() -> None:
    run = Run(full(4), window(2, 3), pool=12)
    run.do(arrive("a", "t9", output=2), step())
    run.sees("a 9 [1 2 3] [4 5 6 7 8]", "4a=1 8a=2 | 4a=5 8a=7", "9 10 11")
    run.do(arrive("b", "t9", output=2), step())
    run.sees("b 9 [1 2 6] [. . . 7 4]", "4a=1 8a=2 | 4a=5 8a=7", "8 3 9 10 11 5")


def test_from_an_unaligned_r_the_first_chunk_ends_on_the_grid() -> None:
    run = Run(full(4), mamba(4), pool=15, connector=STORE)
    run.do(arrive("a", "t15", 6), step())
    run.sees("a 8 [1 2] [. 3]", "4a=1 8a=2 | 8a=3", "4 5 6 7 8 9 10 11 12 13 14")
    run.do(step())
    run.sees("a 12 [1 2 4] [. 3 5]", "4a=1 8a=2 12a=4 | 8a=3 12a=5", "6 7 8 9 10 11 12 13 14")
    run.do(step())
    run.sees("", "4a=1 8a=2 12a=4 | 8a=3 12a=5", "7 6 8 9 10 11 12 13 14 3 5 4 2 1")


def test_external_tokens_without_a_claim_starts_at_the_common_hit() -> None:
    run = Run(full(2), mamba(2), pool=15, connector=STORE, eviction=ADVERSARIAL)
    run.do(arrive("a", "t6"), step(2), step(2), step(2))
    run.sees("", "2a=1 4a=3 6a=5 | 2a=2 4a=4 6a=6", "7 8 9 10 11 12 13 14 2 4 5 3 1 6")
    run.do(Evict(1, "a", 4), Evict(1, "a", 6), arrive("b", "t6 u4", 2), step())
    run.sees("b 6 [1 7 9] [. 8 10]", "2a=1 4a=3,7 6a=5,9 | 2a=2 4a=8 6a=10", "11 12 13 14 2 4 5 3 6")


def test_external_tokens_with_a_claim_starts_at_the_attention_hit() -> None:
    run = Run(full(2), mamba(2), pool=15, connector=CLAIMER, eviction=ADVERSARIAL)
    run.do(arrive("a", "t6"), step(2), step(2), step(2))
    run.sees("", "2a=1 4a=3 6a=5 | 2a=2 4a=4 6a=6", "7 8 9 10 11 12 13 14 2 4 5 3 1 6")
    run.do(Evict(1, "a", 4), Evict(1, "a", 6), arrive("b", "t6 u4", 2), step())
    run.sees("", "2a=1 4a=3 6a=5 8b=7 10b=9 | 2a=2 8b=8 10b=10", "11 12 13 14 2 4 6 8 9 7 5 3 1 10")


def test_a_claim_with_no_external_tokens_goes_back_to_the_common_hit() -> None:
    run = Run(full(2), mamba(2), pool=15, connector=CLAIMER, eviction=ADVERSARIAL)
    run.do(arrive("a", "t6"), step(2), step(2), step(2))
    run.sees("", "2a=1 4a=3 6a=5 | 2a=2 4a=4 6a=6", "7 8 9 10 11 12 13 14 2 4 5 3 1 6")
    run.do(Evict(1, "a", 4), Evict(1, "a", 6), arrive("b", "t6 u4"), step())
    run.sees("b 6 [1 7 8] [2 . 9]", "2a=1 4a=3,7 6a=5,8 | 2a=2 6a=9", "10 11 12 13 14 4 5 3 6")


def test_external_tokens_takes_one_recurrent_block_for_r_and_one_for_the_chunk_end() -> None:
    run = Run(mamba(2), full(4), window(2, 4), pool=25, connector=STORE)
    run.do(arrive("a", "t11", 5), step(8))
    run.sees("a 6 [. . 1] [2 3] [. 4 5]", "- | 4a=2 | 4a=4", "6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24")
    run.do(step())
    run.sees(
        "a 10 [. . 1 . 6] [2 3 7] [. 4 5 8 9]",
        "6a=1 | 4a=2 8a=3 | 4a=4 6a=5 8a=8",
        "10 11 12 13 14 15 16 17 18 19 20 21 22 23 24",
    )


def test_blocks_of_an_aborted_load_are_held_until_the_load_has_ended() -> None:
    run = Run(full(2), mamba(2), pool=12, connector=STORE)
    run.do(arrive("a", "t7", 4, later=True), step(), Abort("a"), step())
    run.sees("a 4 [1 2] [. 3]", "- | -", "4 5 6 7 8 9 10 11")
    run.do(EndLoad("a"))
    run.sees("", "- | -", "3 2 1 4 5 6 7 8 9 10 11")


def test_a_failed_load_goes_back_to_0() -> None:
    run = Run(full(2), mamba(2), pool=12, connector=STORE)
    # The failure was set in the subject as 0.30 takes it; 0.28 raises for several groups.
    run.do(arrive("a", "t7", 4, 0, later=True), step())
    run.sees("a 4 [1 2] [. 3]; skipped a", "- | -", "4 5 6 7 8 9 10 11")
    run.do(EndLoad("a", succeeded=False))
    run.sees("a 0 [1 2] [. 3]; skipped a", "- | -", "4 5 6 7 8 9 10 11")
    run.do(step())
    run.sees("a 6 [3 2 1] [. . 4]", "2a=3 4a=2 6a=1 | 6a=4", "5 6 7 8 9 10 11")


def test_a_load_of_the_whole_prompt_runs_the_last_token_again() -> None:
    run = Run(full(2), mamba(2), pool=9, connector=BEYOND_RANGE)
    run.do(arrive("a", "t4", 4, output=2, later=True), step(), EndLoad("a"))
    run.sees("a 4 [1 2] [. 3]; skipped a", "- | -", "4 5 6 7 8")
    run.do(step())
    run.sees("a 4 [1 2] [. 3]", "2a=1 4a=2 | 4a=3", "4 5 6 7 8")


def test_requests_that_are_asked_again_keep_their_order_in_front() -> None:
    run = Run(full(2), mamba(2), pool=15, connector=STORE)
    run.do(arrive("p", "p4", None, None, 0), arrive("q", "q4", None, 0), arrive("z", "z4"), step())
    run.sees("skipped p q", "2z=1 4z=2 | 4z=3", "4 5 6 7 8 9 10 11 12 13 14 2 1 3")
    run.do(step())
    run.sees("skipped p", "2q=4 4q=5 2z=1 4z=2 | 4q=6 4z=3", "7 8 9 10 11 12 13 14 2 1 3 5 4 6")
    run.do(step())
    run.sees("", "2p=7 4p=8 2q=4 4q=5 2z=1 4z=2 | 4p=9 4q=6 4z=3", "10 11 12 13 14 2 1 3 5 4 6 8 7 9")


def test_a_waiting_request_without_room_for_an_aligned_chunk_stops_the_queue() -> None:
    run = Run(full(4), mamba(4), pool=15)
    run.do(arrive("a", "a9", output=2), arrive("b", "b8"), arrive("c", "c2"), step(10))
    run.sees("a 8 [1 2] [. 3]; waiting b c", "4a=1 8a=2 | 8a=3", "4 5 6 7 8 9 10 11 12 13 14")
    run.do(step(4))
    run.sees("a 9 [1 2 4] [. 3 5]; waiting b c", "4a=1 8a=2 | 8a=3", "6 7 8 9 10 11 12 13 14")


def test_a_reset_preempts_and_keeps_the_free_order() -> None:
    run = Run(full(2), mamba(2), pool=12)
    run.do(arrive("a", "t5", output=3), arrive("b", "u3", output=3), step())
    run.sees("a 4 [1 2] [. 3]; b 2 [4] [5]", "2a=1 4a=2 2b=4 | 4a=3 2b=5", "6 7 8 9 10 11")
    run.do(Reset())
    run.sees("waiting a b", "- | -", "6 7 8 9 10 11 4 5 2 1 3")
    run.do(step())
    run.sees("a 4 [6 7] [. 8]; b 2 [9] [10]", "2a=6 4a=7 2b=9 | 4a=8 2b=10", "11 4 5 2 1 3")


def test_a_preempted_request_finds_its_own_blocks_again() -> None:
    run = Run(full(2), mamba(2), pool=12)
    run.do(arrive("a", "t5", output=3), step())
    run.sees("a 4 [1 2] [. 3]", "2a=1 4a=2 | 4a=3", "4 5 6 7 8 9 10 11")
    run.do(step())
    run.sees("a 5 [1 2 4] [. 3 5]", "2a=1 4a=2 | 4a=3", "6 7 8 9 10 11")
    run.do(Preempt())
    run.sees("waiting a", "2a=1 4a=2 | 4a=3", "5 4 6 7 8 9 10 11 2 1 3")
    run.do(step())
    run.sees("a 6 [1 2 5] [. 3 4]", "2a=1 4a=2 6a=5 | 4a=3 6a=4", "6 7 8 9 10 11")


def test_an_evicted_block_keeps_its_place_in_the_free_queue() -> None:
    run = Run(full(2), mamba(2), pool=9, eviction=ADVERSARIAL)
    run.do(arrive("a", "t4"), step())
    run.sees("", "2a=1 4a=2 | 4a=3", "4 5 6 7 8 2 1 3")
    run.do(Evict(0, "a", 2))
    run.sees("", "4a=2 | 4a=3", "4 5 6 7 8 2 1 3")
    run.do(arrive("b", "u3"), step())
    run.sees("b 2 [4] [5]", "4a=2 2b=4 | 4a=3 2b=5", "6 7 8 2 1 3")


def test_a_chunk_ends_where_another_request_prefix_does_if_no_state_is_cached_there() -> None:
    run = Run(full(2), mamba(2), pool=15)
    run.do(arrive("a", "t6"), step())
    run.sees("", "2a=1 4a=2 6a=3 | 6a=4", "5 6 7 8 9 10 11 12 13 14 3 2 1 4")
    run.do(arrive("b", "t4 u4"), step())
    run.sees("b 4 [5 6] [. 7]", "2a=1,5 4a=2,6 6a=3 | 4a=7 6a=4", "8 9 10 11 12 13 14 3 2 1 4")
    run.do(step())
    run.sees("", "2a=1,5 4a=2,6 6a=3 6b=8 8b=9 | 4a=7 6a=4 8b=10", "11 12 13 14 3 2 1 4 9 8 6 5 10 7")
