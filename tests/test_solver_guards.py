"""Every branch of a policy is needed in one direction at least, or said to be idle or equivalent."""

from __future__ import annotations

import pytest

from model.policies import DISTINCT
from model.policies.vllm import Vllm028
from model.policy import Summary
from properties.verdict import REQUIRED_CELL, Result
from solver.prove import prove
from tests.proofs import proof_of


def guards(results: tuple[Result, ...]) -> dict[str, set[str]]:
    """Guard and direction -> properties that fail without it, or "idle" or "equivalent"."""
    found: dict[str, set[str]] = {}
    for result in results:
        for text in result.detail["guards"]:
            guard, _, fate = text.partition(": ")
            found.setdefault(guard, set()).add(result.property if fate == "an obligation fails" else fate)
    return found


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("vllm-0.28", {"HIT-RESUME", "LOAD-SOURCE", "ASK-UNKNOWN"}),
        ("reference", {"HIT-RESUME", "HIT-COVER", "GEO-INTERVAL", "POLICY-TOTAL", "LOAD-SOURCE", "ASK-UNKNOWN"}),
    ],
)
def test_what_the_guards_of_a_policy_are_for(name: str, needed: set[str]) -> None:
    found = guards(proof_of(name))
    assert {property for properties in found.values() for property in properties} - {"idle", "equivalent"} == needed


def test_each_branch_of_an_admission_is_needed_one_way() -> None:
    """The choice among answers is not: whichever child wins, consistently, is safe."""
    by_line: dict[str, set[str]] = {}
    for guard, properties in guards(proof_of("vllm-0.28")).items():
        by_line.setdefault(guard.split(" ")[0], set()).update(properties)
    unneeded = [place for place, properties in by_line.items() if properties <= {"idle", "equivalent"}]
    assert len(by_line) == 7
    assert len(unneeded) == 1


class Redundant(Vllm028):
    """Tests something twice: the second test changes nothing."""

    name = "redundant"

    def ask(self, L: int, summary: Summary) -> int:
        aligned = L - L % summary.scheduler_block
        return aligned if L >= 0 and aligned <= L else 0


def test_a_guard_that_changes_nothing_is_proved_equivalent() -> None:
    found = guards(prove(Redundant(), cells=(REQUIRED_CELL,)))
    own = {guard: fates for guard, fates in found.items() if "test_solver_guards" in guard}
    assert {guard.rpartition(" ")[2]: fates for guard, fates in own.items()}["True"] == {"equivalent"}
    assert len(own) == 4


def test_guards_are_named_by_their_place_in_the_source() -> None:
    for guard in guards(proof_of("vllm-0.28")):
        assert guard.startswith("model/policies/vllm.py:")


def test_dropping_guards_is_done_for_every_shipped_policy() -> None:
    assert all(guards(proof_of(name)) for name in DISTINCT)
