"""What cannot be made symbolic is refused with file, line and advice, and never gets a verdict."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from hitbound.policy_loading import load_policy
from model.errors import PolicyError
from model.policies.vllm import Vllm028
from model.policy import Policy
from properties.verdict import REQUIRED_CELL, Result, Verdict
from solver.decide import Decider, Outcome
from solver.decision import explore_admission
from solver.equivalence import decide_equivalence
from solver.prove import prove


def policy_with(tmp_path: Path, body: str) -> Policy:
    """A policy whose `ask` is `body`, from a file of its own; the body begins in line 7."""
    file = tmp_path / "mine.py"
    head = "import math\nfrom model.policies.vllm import Vllm028\nfrom model.policy import COMMON, UNKNOWN\n\n"
    part = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    text = f"{head}class Mine(Vllm028):\n    def ask(self, L, summary):\n{part}\n"
    file.write_text(text, encoding="utf-8")
    return load_policy(f"{file}:Mine")


def examine(policy: Policy) -> None:
    """Explore the part that is at fault, and prove the whole only if that is not enough to be refused."""
    explore_admission(policy)
    prove(policy, cells=(REQUIRED_CELL,))


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("return L if isinstance(L, int) else 0", "isinstance()"),
        ("return L if type(L) == int else 0", "type()"),
        ("return L if (L > 0) is True else 0", "`is`"),
        ("return L if L is summary.common else 0", "`is`"),
        ("return L if L is not UNKNOWN else 0", "`is`"),
        ("return int(L)", "int()"),
        ("return math.floor(L)", "math.floor()"),
        ("return int(float(L))", "float()"),
        ("return sum(1 for _ in range(L))", "range() or an index"),
        ("return [0, 1][L]", "range() or an index"),
        ("return {L: 1}.get(L, 0)", "a dict key"),
        ("return len({L})", "a dict key"),
        ("return hash(L)", "a dict key"),
        ("return L / 2", "the operation /"),
        ("return L ** 2", "the operation **"),
        ("return L * 0.5", "the float 0.5"),
        ("return L if L > 0.5 else 0", "the float 0.5"),
        ("return L & 3", "the bit operation &"),
        ("return 1 << L", "the bit operation <<"),
        ("return ~L", "the bit operation ~"),
        ("return L * (L > 0)", "arithmetic with a truth value"),
        ("return (L > 0) + 0", "arithmetic with a truth value"),
        ("return L // summary.common", "division by"),
        ("return L % -2", "division by"),
        ("return L if str(L) == '3' else 0", "str()"),
        ("return len(f'{L}')", "an f-string"),
        ("try:\n    return int(L)\nexcept:\n    return 0", "catching every exception"),
        ("try:\n    return int(L)\nexcept BaseException:\n    return 0", "catching every exception"),
        ("try:\n    return int(L)\nexcept Exception:\n    return 0", "int()"),
        ("return L.bit_length()", "bit_length"),
        ("match L > 0:\n    case True:\n        return L\nreturn 0", "`case True`"),
        ("match L:\n    case int():\n        return L\nreturn 0", "isinstance()"),
    ],
)
def test_what_would_lie_or_cannot_be_done_is_refused(tmp_path: Path, body: str, what: str) -> None:
    with pytest.raises(PolicyError, match=r"mine\.py:\d+: ") as refusal:
        examine(policy_with(tmp_path, body))
    assert what in str(refusal.value)
    line = int(str(refusal.value).split("mine.py:")[1].split(":")[0])
    assert 7 <= line <= 7 + body.count("\n")


ALIGN = "L -= L % summary.scheduler_block\n"


@pytest.mark.parametrize(
    "body",
    [
        "return L // summary.scheduler_block * summary.scheduler_block",
        "return summary.scheduler_block * (L // summary.scheduler_block)",
        "return L - divmod(L, summary.scheduler_block)[1]",
        "return L - L % summary.scheduler_block if None is not L else 0",
        f"{ALIGN}return min(L, max(L, 0))",
        f"{ALIGN}return abs(L)",
        f"{ALIGN}return -(-L)",
        f"{ALIGN}return L if L in (L, 3) else 0",
        f"{ALIGN}return sum([L, 0])",
        f"{ALIGN}return L if L != None else 0",
        f"{ALIGN}assert L >= 0, f'L is {{L}}'\nreturn L",
        f"{ALIGN}return (L or 0)",
    ],
)
def test_other_ways_to_write_the_same_are_proved_equivalent(tmp_path: Path, body: str) -> None:
    decided = decide_equivalence(Vllm028(), policy_with(tmp_path, body), Decider())
    assert decided.outcome is Outcome.HOLDS, decided.reason


@pytest.mark.parametrize(
    ("body", "returned"),
    [
        ("return None", "None (NoneType); return a number of tokens"),
        ("return L > 0", "a single truth value; return a number of tokens"),
        ("return True", "a single truth value; return a number of tokens"),
        ("return L, L", "; return a number of tokens"),
        ("if L > 4:\n    return 'much'\nreturn L", "'much' (str); return a number of tokens"),
    ],
)
def test_a_wrong_type_is_refused_with_the_part_even_on_one_path_only(tmp_path: Path, body: str, returned: str) -> None:
    with pytest.raises(PolicyError, match=r"mine\.py:6: `ask` returned") as refusal:
        examine(policy_with(tmp_path, body))
    assert returned in str(refusal.value)


def test_helpers_are_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def same(a, b):\n    return a is b\n", encoding="utf-8")
    file = tmp_path / "mine.py"
    file.write_text(
        "from helper import same\nfrom model.policies.vllm import Vllm028\n\n"
        "class Mine(Vllm028):\n    def ask(self, L, summary):\n        return L if same(L, L) else 0\n",
        encoding="utf-8",
    )
    with pytest.raises(PolicyError, match=r"helper\.py:2: `is` cannot be made symbolic"):
        prove(load_policy(f"{file}:Mine"))


def required(results: tuple[Result, ...]) -> dict[str, Result]:
    return {result.property: result for result in results if result.required}


def test_a_policy_that_loops_without_end_is_undecided(tmp_path: Path) -> None:
    total = required(prove(policy_with(tmp_path, "while True:\n    pass")))["POLICY-TOTAL"]
    assert total.verdict is Verdict.UNKNOWN
    assert "did not end" in total.reason


def test_a_loop_that_swallows_errors_is_stopped_too(tmp_path: Path) -> None:
    body = "while True:\n    try:\n        L += 1\n    except Exception:\n        pass"
    assert (
        required(prove(policy_with(tmp_path, body), cells=(REQUIRED_CELL,)))["POLICY-TOTAL"].verdict is Verdict.UNKNOWN
    )


def test_endless_recursion_is_undecided(tmp_path: Path) -> None:
    total = required(prove(policy_with(tmp_path, "return self.ask(L, summary)")))["POLICY-TOTAL"]
    assert total.verdict is Verdict.UNKNOWN


def test_a_policy_that_raises_on_a_reachable_input_is_violated_with_that_input(tmp_path: Path) -> None:
    found = required(prove(policy_with(tmp_path, "if L > 3:\n    raise ValueError('L is large')\nreturn L")))
    total = found["POLICY-TOTAL"]
    assert total.verdict is Verdict.VIOLATED
    assert total.trace is not None
    assert "L is large" in total.reason
    assert found["HIT-LAST"].verdict is Verdict.UNKNOWN


def test_a_policy_that_raises_only_where_no_run_comes_is_total(tmp_path: Path) -> None:
    body = "assert summary.common <= summary.shallowest <= summary.deepest\nreturn L"
    assert (
        required(prove(policy_with(tmp_path, body), cells=(REQUIRED_CELL,)))["POLICY-TOTAL"].verdict is Verdict.PROVED
    )


def test_a_missing_part_is_named() -> None:
    class Empty:
        name = "empty"

    with pytest.raises(PolicyError, match="lacks `accept`"):
        prove(Empty())  # type: ignore[arg-type]
