"""The forking evaluator: all paths, nothing lost, nothing silently wrong."""

from __future__ import annotations

from typing import Any

import pytest
import z3

from model.errors import PolicyError
from model.policies.vllm import Vllm028
from model.policy import Summary
from solver import forking
from solver.forking import Exploration, ForkingRun, Site, explore
from solver.prove import prove

X, Y = z3.Ints("x y")


def paths_of(function: Any, *laws: z3.BoolRef) -> Exploration[Any]:
    return explore(lambda run: function(run.number(X), run.number(Y)), laws)


def results(exploration: Exploration[Any]) -> list[Any]:
    return sorted(path.result for path in exploration.paths if path.result is not None)


def covered(exploration: Exploration[Any], *laws: z3.BoolRef) -> bool:
    """Whether some path applies to every input that the laws allow."""
    solver = z3.Solver()
    solver.add(*laws, *(z3.Not(z3.And(*path.conditions)) for path in exploration.paths if path.conditions))
    return bool(solver.check() == z3.unsat)


def test_every_way_through_is_followed_once() -> None:
    def sign(x: Any, y: Any) -> int:
        if x > 0:
            return 1
        return -1 if x < 0 else 0

    found = paths_of(sign)
    assert results(found) == [-1, 0, 1]
    assert covered(found)
    assert not found.infeasible


def test_ways_that_are_not_feasible_are_left_out_and_reported() -> None:
    def nested(x: Any, y: Any) -> int:
        if x > y:
            return 1 if y > x else 2
        return 3

    found = paths_of(nested)
    assert results(found) == [2, 3]
    (left_out,) = found.infeasible
    solver = z3.Solver()
    solver.add(left_out)
    assert solver.check() == z3.unsat


def test_forced_decisions_are_recorded_so_that_a_replay_stays_in_step() -> None:
    """The second branch is forced on one side of the first; if it were not recorded the third would be misread."""

    def three(x: Any, y: Any) -> tuple[bool, bool, bool]:
        return bool(x > 0), bool(x > -1), bool(y > 0)

    found = paths_of(three)
    assert len({path.result for path in found.paths}) == len(found.paths) == 6
    assert covered(found)


def test_what_the_solver_does_not_know_is_kept_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ForkingRun, "_check", lambda run, condition: z3.unknown)
    found = paths_of(lambda x, y: 1 if x > x + 1 else 2)
    assert results(found) == [1, 2]
    assert not found.infeasible


def test_a_path_that_turns_out_infeasible_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([z3.unknown, z3.unknown])
    check = ForkingRun._check
    monkeypatch.setattr(ForkingRun, "_check", lambda run, condition: next(answers, None) or check(run, condition))

    def impossible_then_branch(x: Any, y: Any) -> int:
        if x > x + 1:
            return 1 if y > 0 else 2
        return 3

    found = paths_of(impossible_then_branch)
    assert [path.result for path in found.paths] == [3]
    assert len(found.infeasible) == 2


def test_min_and_max_over_a_list_fork() -> None:
    found = paths_of(lambda x, y: min(x, y, 5))
    assert len(found.paths) == 4
    assert covered(found)


def test_a_guard_that_is_dropped_teaches_nothing() -> None:
    def guarded(x: Any, y: Any) -> int:
        return 1 if x > 0 else 2

    (site,) = paths_of(guarded).sites
    for value, result in ((True, 1), (False, 2)):
        (path,) = explore(lambda run: guarded(run.number(X), 0), (), {site: value}).paths
        assert (path.result, path.conditions) == (result, ())


def test_branches_of_one_line_are_told_apart() -> None:
    found = paths_of(lambda x, y: (1 if x > 0 else 2) + (1 if y > 0 else 2))
    assert len({(site.line, site.column) for site in found.sites}) == 2
    assert all(isinstance(site, Site) and site.file == __file__ for site in found.sites)


class Counting(Vllm028):
    """Remembers how often it was asked."""

    name = "counting"

    def __init__(self) -> None:
        self.calls = 0

    def ask(self, L: int, summary: Summary) -> int:
        self.calls += 1
        return L + self.calls


class Alternating(Counting):
    """Branches elsewhere every other time."""

    def ask(self, L: int, summary: Summary) -> int:
        self.calls += 1
        if self.calls % 2:
            return L if L > 3 else 0
        return L if L > 5 else 0


@pytest.mark.parametrize("policy", [Counting(), Alternating()], ids=["result", "branch"])
def test_a_policy_that_keeps_state_is_refused(policy: Vllm028) -> None:
    with pytest.raises(PolicyError, match=r"test_solver_forking\.py:\d+: .* keep no state between calls"):
        prove(policy)


def test_too_many_branches_and_too_many_paths_are_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def count_down(x: Any, y: Any) -> int:
        steps = 0
        while x > steps:
            steps += 1
        return steps

    assert "branches more than 64 times" in paths_of(count_down).endless
    monkeypatch.setattr(forking, "PATHS", 3)
    assert "more than 3 cases" in paths_of(lambda x, y: min(x, y, 1, 2)).endless


def test_a_path_that_raises_is_kept_as_such() -> None:
    class Raising(Vllm028):
        def cap(self, N: int) -> int:
            if N > 3:
                raise ValueError("too long")
            return N - 1

    found = explore(lambda run: run.call(Raising(), "cap", run.number(X)), ())
    (raised,) = found.raising
    assert raised.raised is not None
    assert "too long" in str(raised.raised)
    assert sum(path.ended for path in found.paths) == 1
