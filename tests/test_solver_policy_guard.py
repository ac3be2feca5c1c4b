"""The guard around a policy on ints: missing parts, wrong types, parts that raise or do not end."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from model.errors import PolicyError
from model.policies.vllm import Vllm028
from model.policy import COMMON, NOTHING, Answer, Child, Lookup, Summary
from properties.policy_guard import LINES, PolicyLoops, PolicyRaised, guarded

SUMMARY = Summary(COMMON, 4, 2, 4, 4, 2, 2, 2)


def test_a_sound_policy_is_not_disturbed() -> None:
    policy = guarded(Vllm028())
    assert policy.cap(5) == 4
    assert policy.lookup(False) is COMMON
    assert policy.local(SUMMARY) == (2, False)
    assert policy.choose_step(NOTHING, NOTHING) == NOTHING
    assert policy.name == "vllm-0.28"
    assert policy.claim_start is None
    assert not hasattr(policy, "claims")


class Wrong(Vllm028):
    def __init__(self, **results: Any) -> None:
        self.results = results

    def cap(self, N: int) -> int:
        return self.results["cap"]  # type: ignore[no-any-return]

    def lookup(self, claims: bool) -> Lookup:
        return self.results["lookup"]  # type: ignore[no-any-return]

    def local(self, summary: Summary) -> tuple[int, bool]:
        return self.results["local"]  # type: ignore[no-any-return]

    def choose_step(self, acc: Answer, child_answer: Answer) -> Answer:
        return self.results["choose_step"]  # type: ignore[no-any-return]

    def claim_end(self, acc: bool | None) -> bool:
        return self.results["claim_end"]  # type: ignore[no-any-return]

    def claim_step(self, acc: bool | None, child: Child) -> bool | None:
        return self.results["claim_step"]  # type: ignore[no-any-return]


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "cap": (5,),
    "lookup": (True,),
    "local": (SUMMARY,),
    "choose_step": (NOTHING, NOTHING),
    "claim_end": (None,),
    "claim_step": (None, Child(True)),
}


@pytest.mark.parametrize(
    ("part", "returned"),
    [
        ("cap", None),
        ("cap", 4.0),
        ("cap", True),
        ("lookup", "common"),
        ("lookup", None),
        ("local", 2),
        ("local", (2, 0)),
        ("local", (2.0, False)),
        ("local", [2, False]),
        ("local", (2, False, 0)),
        ("choose_step", None),
        ("choose_step", Answer(unknown=0, tokens=0, asynchronous=False, source=0)),  # type: ignore[arg-type]
        ("choose_step", Answer(unknown=False, tokens=1.0, asynchronous=False, source=0)),  # type: ignore[arg-type]
        ("claim_end", None),
        ("claim_end", 1),
        ("claim_step", []),
    ],
)
def test_a_wrong_type_is_named_with_part_and_place(part: str, returned: Any) -> None:
    policy = guarded(Wrong(**{part: returned}))
    with pytest.raises(PolicyError, match=rf"{__file__}:\d+: `{part}` returned"):
        getattr(policy, part)(*ARGUMENTS[part])


def test_a_part_that_raises_is_reported_with_its_line() -> None:
    class Raising(Vllm028):
        def cap(self, N: int) -> int:
            return 1 // 0

    with pytest.raises(PolicyRaised, match=r"`cap` raised ZeroDivisionError: .* at .*test_solver_policy_guard\.py:\d+"):
        guarded(Raising()).cap(5)


class Endless(Vllm028):
    def cap(self, N: int) -> int:
        while True:
            pass

    def ask(self, L: int, summary: Summary) -> int:
        return self.ask(L, summary)

    def assign(self, E: int, won: bool) -> int:
        while True:
            try:
                E += 1
            except Exception:
                E = 0


@pytest.mark.parametrize(("part", "arguments"), [("cap", (5,)), ("ask", (2, SUMMARY)), ("assign", (1, True))])
def test_a_part_that_does_not_end_is_stopped(part: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(PolicyLoops, match=rf"`{part}` did not end within {LINES} lines"):
        getattr(guarded(Endless()), part)(*arguments)


def test_a_long_part_that_ends_is_let_be() -> None:
    class Long(Vllm028):
        def cap(self, N: int) -> int:
            total = 0
            for _ in range(LINES // 4):
                total += 1
            return total

    assert guarded(Long()).cap(5) == LINES // 4


def test_the_tracer_that_was_set_before_is_set_again() -> None:
    def tracer(*arguments: Any) -> None:
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        guarded(Vllm028()).cap(5)
        with pytest.raises(PolicyLoops):
            guarded(Endless()).cap(5)
        after = sys.gettrace()
    finally:
        sys.settrace(before)
    assert after is tracer
