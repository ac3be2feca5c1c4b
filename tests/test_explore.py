"""The exhaustive search: what it counts, what it finds, and that its short cuts change nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import attrs
import pytest

from model.actions import LeafAnswers, ScriptedAnswer
from model.policies import DISTINCT, POLICIES
from model.policies.mutants import EQUIVALENT, MUTANTS
from model.policies.vllm import Vllm028
from model.policy import Policy, Summary
from properties.policy_guard import guarded
from properties.replay import replay
from properties.verdict import Result, Verdict
from solver.canonical import alike
from solver.checkpoint import CheckpointError
from solver.codec import Codec
from solver.explore import explore, searched
from solver.memo import MemoisedSuccessors
from solver.scope import Disturbance, Scope, ScopeError, scope_of
from solver.scopes import SCOPES
from solver.search import FULL, NONE, Limits, Search, Symmetry
from solver.successors import Successors

V024, V027, V028 = POLICIES["vllm-0.24"], POLICIES["vllm-0.27"], POLICIES["vllm-0.28"]

COUNTS = {
    "local": (109, 258),
    "same-step": (49, 67),
    "synchronous-load": (341, 1_140),
    "asynchronous-load": (57, 129),
    "divergent": (365, 1_200),
    "fallback": (842, 3_181),
    "unaligned-load": (107, 258),
    "empty-composite": (15, 18),
    "composite": (378, 1_299),
    "preemption": (101, 250),
    "second-attention": (105, 244),
    "copy-before-load": (11, 14),
    "crossing": (9_166, 58_358),
    "reference": (2_610, 13_036),
}
"""States and transitions under vllm-0.28, symmetric ones counted once."""

COUNTS_WITHOUT_SYMMETRY = {
    "local": (127, 283),
    "synchronous-load": (927, 2_939),
    "copy-before-load": (11, 14),
}
"""The same with every name told apart; `reference` is counted by the benchmark."""


def twins() -> Scope:
    """Two requests that may be swapped."""
    scope = SCOPES["asynchronous-load"]
    second = attrs.evolve(
        scope.arrivals[1],
        request="c",
        prompt=(scope.arrivals[1].prompt[0], attrs.evolve(scope.arrivals[1].prompt[1], text="c")),
        output=(attrs.evolve(scope.arrivals[1].output[0], text="c-out"),),
    )
    return attrs.evolve(scope, name="twins", arrivals=(*scope.arrivals, second), reaches=())


def verdicts(results: Iterable[Result]) -> set[tuple[object, ...]]:
    return {(result.property, result.case, result.verdict) for result in results}


def violated(results: Iterable[Result]) -> dict[str, int]:
    """Property -> actions of its shortest trace."""
    found: dict[str, int] = {}
    for result in results:
        if result.verdict is Verdict.VIOLATED and result.trace is not None:
            found[result.property] = min(found.get(result.property, 99), len(result.trace.actions))
    return found


@pytest.mark.parametrize("name", SCOPES)
def test_named_scopes_have_the_pinned_counts_and_hold_where_they_must(name: str) -> None:
    results = explore(V028, SCOPES[name])
    assert (results[0].detail["states"], results[0].detail["transitions"]) == COUNTS[name]
    for result in results:
        if result.required:
            assert result.verdict is Verdict.HOLDS_WITHIN, result


@pytest.mark.parametrize("name", COUNTS_WITHOUT_SYMMETRY)
@pytest.mark.parametrize("policy", DISTINCT.values(), ids=DISTINCT)
def test_symmetry_changes_no_verdict_and_no_length(name: str, policy: Policy) -> None:
    sorted_, plain = explore(policy, SCOPES[name]), explore(policy, SCOPES[name], symmetry=NONE)
    assert verdicts(sorted_) == verdicts(plain)
    assert violated(sorted_) == violated(plain)
    if policy is V028:
        detail = plain[0].detail
        assert (detail["states"], detail["transitions"]) == COUNTS_WITHOUT_SYMMETRY[name]


@pytest.mark.parametrize("policy", [V024, V028], ids=lambda policy: policy.name)
def test_sorting_requests_changes_no_verdict_and_no_length(policy: Policy) -> None:
    scope = twins()
    assert alike(scope) == ((1, 2),)
    both = explore(policy, scope)
    apart = explore(policy, scope, symmetry=Symmetry(blocks=True, requests=False))
    assert both[0].detail["states"] < apart[0].detail["states"] * 0.7
    assert verdicts(both) == verdicts(apart)
    assert violated(both) == violated(apart)


@pytest.mark.parametrize("policy", [V024, V028], ids=lambda policy: policy.name)
@pytest.mark.parametrize(
    "name",
    ["local", "same-step", "synchronous-load", "asynchronous-load", "composite", "preemption", "second-attention"],
)
def test_remembered_successors_are_those_of_the_model(name: str, policy: Policy) -> None:
    agree(SCOPES[name], policy, 500)


def test_remembered_successors_are_those_of_the_model_when_everything_happens() -> None:
    agree(attrs.evolve(SCOPES["local"], disturbances=frozenset(Disturbance)), V028, 800)
    agree(SCOPES["crossing"], V028, 900)


def agree(scope: Scope, policy: Policy, states: int) -> None:
    """Every successor with its violations and events, of the first states of the scope."""
    codec = Codec(scope, sort_blocks=True)
    plain = Successors(scope, guarded(policy), codec)
    memoised = MemoisedSuccessors(scope, guarded(policy), codec)
    reached = dict.fromkeys((plain.initial,))
    for code in (todo := list(reached)):
        expected = plain.of(code)
        told = {
            (number, after, judged.events, frozenset((v.property, v.case) for v in judged.violations))
            for number, after, judged in expected
        }
        assert told == {
            (number, after, judged.events, frozenset((v.property, v.case) for v in judged.violations))
            for number, after, judged in memoised.of(code)
        }
        for _, after, *_ in told:
            if after is not None and after not in reached and len(reached) < states:
                reached[after] = None
                todo.append(after)


@pytest.mark.parametrize(
    ("policy", "scope", "property", "actions"),
    [(V024, "synchronous-load", "HIT-RESUME", 6), (V027, "synchronous-load", "HIT-RESUME", 8)],
)
def test_traces_are_shortest_and_replayed(policy: Policy, scope: str, property: str, actions: int) -> None:
    results = explore(policy, SCOPES[scope])
    assert violated(results)[property] == actions
    for result in results:
        if result.trace is not None:
            found = replay(result.trace, policy).violations
            assert (result.property, result.case) in {(violation.property, violation.case) for violation in found}
            assert result.trace.expectations[0].violates


FOUND_IN = {
    "capability ignored": ("synchronous-load", "HIT-RESUME", 8),
    "fallback skipped": ("divergent", "HIT-RESUME", 6),
    "fallback to L": ("divergent", "HIT-RESUME", 6),
    "deeper-than-attention test dropped": ("fallback", "HIT-RESUME", 8),
    "maximum for the attention hit": ("divergent", "HIT-COVER", 7),
    "any() for all()": ("empty-composite", "CAP-MEET", 2),
    "empty composite claims": ("empty-composite", "CAP-MEET", 2),
    "first answer with last load": ("composite", "LOAD-SOURCE", 2),
    "losers load": ("composite", "LOAD-SOURCE", 2),
    "cap N": ("local", "HIT-LAST", 5),
    "E trimmed": ("unaligned-load", "LOAD-EXACT", 2),
    "list trimmed": ("local", "HIT-MEMBER", 7),
    "candidate raised": ("local", "HIT-SHRINK", 6),
}
"""Mutant -> a scope in which it is found, by what, and in how many actions."""


@pytest.mark.mutants
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_found_with_a_shortest_trace(name: str) -> None:
    scope, property, actions = FOUND_IN[name]
    assert violated(explore(MUTANTS[name], SCOPES[scope]))[property] == actions


@pytest.mark.mutants
@pytest.mark.parametrize("name", EQUIVALENT)
def test_equivalent_mutants_reach_the_same_states(name: str) -> None:
    for scope in ("divergent", "composite", "empty-composite"):
        mutant, policy = explore(EQUIVALENT[name], SCOPES[scope]), explore(V028, SCOPES[scope])
        assert verdicts(mutant) == verdicts(policy)
        assert mutant[0].detail == policy[0].detail


@pytest.mark.parametrize("limits", [Limits(states=100), Limits(megabytes=0)])
def test_a_limit_ends_in_a_bounded_verdict_or_none(limits: Limits) -> None:
    results = explore(V028, SCOPES["synchronous-load"], limits=limits)
    assert not results[0].detail["complete"]
    held = {result.verdict for result in results if result.property == "HIT-RESUME"}
    if limits.megabytes:
        assert held == {Verdict.HOLDS_WITHIN}
        assert "runs of at most 5 actions" in results[0].scope
        assert "state limit" in results[0].scope
    else:
        assert held == {Verdict.UNKNOWN}
        assert "memory limit" in results[0].reason


def test_a_bounded_search_without_a_hit_is_vacuous() -> None:
    results = explore(V028, SCOPES["synchronous-load"], limits=Limits(states=12))
    assert {r.verdict for r in results if r.property == "HIT-RESUME"} == {Verdict.VACUOUS}


def test_an_event_that_never_happens_is_vacuous() -> None:
    scope = attrs.evolve(SCOPES["local"], reaches=("RESET",))
    (event,) = (result for result in explore(V028, scope) if result.property == "RESET")
    assert event.verdict is Verdict.VACUOUS


def test_a_stopped_search_goes_on_where_it_was(tmp_path: Path) -> None:
    file, scope = tmp_path / "checkpoint", twins()
    whole = explore(V024, scope)
    for states in (20, 60):
        explore(V024, scope, limits=Limits(states=states), checkpoint=file)
    assert explore(V024, scope, checkpoint=file) == whole


def test_a_checkpoint_of_another_search_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    explore(V028, SCOPES["local"], checkpoint=file)
    with pytest.raises(CheckpointError, match="written for another"):
        explore(V024, SCOPES["local"], checkpoint=file)
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(CheckpointError, match="damaged"):
        explore(V028, SCOPES["local"], checkpoint=file)
    file.write_bytes(b"something else")
    with pytest.raises(CheckpointError, match="no checkpoint"):
        explore(V028, SCOPES["local"], checkpoint=file)


def test_a_request_that_is_asked_for_ever_is_a_livelock() -> None:
    scope = SCOPES["synchronous-load"]
    for_ever = attrs.evolve(scope.arrivals[1], answers=(LeafAnswers("store", (ScriptedAnswer(None),)),))
    results = explore(V028, attrs.evolve(scope, arrivals=(scope.arrivals[0], for_ever)))
    (livelock,) = (result for result in results if result.property == "PROGRESS")
    assert livelock.verdict is Verdict.VIOLATED
    assert livelock.trace is not None
    assert [type(action).__name__ for action in livelock.trace.actions] == ["Arrive", "Step", "Step"]


def test_a_policy_that_raises_is_found_with_its_input() -> None:
    class Raises(Vllm028):
        name = "raises"

        def local(self, summary: Summary) -> tuple[int, bool]:
            return (1 // (2 - summary.full_attention), False) if summary.full_attention > 1 else super().local(summary)

    assert violated(explore(Raises(), SCOPES["local"]))["POLICY-TOTAL"] == 5


def test_a_policy_that_keeps_state_is_never_believed() -> None:
    class Wavers(Vllm028):
        """Caps at N, but only the first few times it is asked."""

        name = "wavers"
        asked = 0

        def cap(self, N: int) -> int:
            self.asked += 1
            return N if self.asked < 3 else N - 1

    results = explore(Wavers(), SCOPES["local"])
    assert "HIT-LAST" not in violated(results)
    (last,) = (result for result in results if result.property == "HIT-LAST")
    assert last.verdict is Verdict.UNKNOWN
    assert "keep state" in last.reason


def test_a_policy_that_loops_is_unknown() -> None:
    class Loops(Vllm028):
        name = "loops"

        def ask(self, L: int, summary: Summary) -> int:
            while True:
                L += 1

    results = explore(Loops(), SCOPES["local"])
    assert not results[0].detail["complete"]
    assert {r.verdict for r in results if r.property == "HIT-RESUME"} <= {Verdict.UNKNOWN, Verdict.VACUOUS}


def test_a_state_costs_less_than_200_bytes() -> None:
    reached = searched(V028, SCOPES["crossing"]).reached
    assert reached.bytes < 250 * len(reached.codes)


def test_a_trace_is_a_scope() -> None:
    (result, *_) = (r for r in explore(V024, SCOPES["synchronous-load"]) if r.verdict is Verdict.VIOLATED)
    assert result.trace is not None
    scope = scope_of(result.trace, "trace")
    assert set(scope.arrivals) <= set(SCOPES["synchronous-load"].arrivals)
    assert result.property in violated(explore(V024, scope))


def test_a_scope_without_requests_or_with_one_that_cannot_arrive_is_refused() -> None:
    with pytest.raises(ScopeError, match="0 requests"):
        attrs.evolve(SCOPES["local"], arrivals=())
    configuration = attrs.evolve(SCOPES["local"].configuration, pool_blocks=3)
    with pytest.raises(ScopeError, match="may need"):
        attrs.evolve(SCOPES["local"], configuration=configuration)


def test_the_search_is_deterministic() -> None:
    first, second = (Search(SCOPES["composite"], V028, FULL).run() for _ in range(2))
    assert list(first.codes) == list(second.codes)
    assert first.parents == second.parents
