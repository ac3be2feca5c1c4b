"""What a campaign on a subject says of itself. No vLLM is needed: the model's own runs stand for a subject's."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import patch

from model.actions import Step
from model.policies import POLICIES
from properties.judge import events
from properties.verdict import Result, Verdict
from subjects import generation
from subjects.conform import Outcome
from subjects.courses import NOT_DRAWN, PROFILES, Course, courses_on, events_of, run_of
from subjects.engine import SubjectEngine
from subjects.process import Failure, SubjectProcess
from subjects.results import EVENT_SHARES, SHARES, results
from tests.small_runs import hybrid

RELEASE, POLICY = "0.33.0", POLICIES["vllm-0.28"]


def outcome_of(courses: tuple[Course, ...], traces: int) -> Outcome:
    """A campaign of `traces` traces of each course, as far as events go."""
    outcome = Outcome(RELEASE, POLICY)
    for course in courses:
        for seed in range(traces):
            happened = frozenset[str]()
            for _, seen in run_of(course, seed, POLICY, RELEASE, actions=15).numbered:
                happened |= events(seen, events_of(course, POLICY) - happened)
            outcome.traces[course] += 1
            outcome.happened.append(happened)
    return outcome


def results_of(outcome: Outcome) -> dict[str, Result]:
    return {result.property: result for result in results(outcome, (), "these traces", compared=True)}


def test_a_campaign_in_which_an_event_never_happens_is_vacuous() -> None:
    with patch.object(generation, "_answers", lambda *_: ()):
        found = results_of(outcome_of(courses_on(RELEASE)[:2], traces=3))
    assert found["EXTERNAL-HIT"].verdict is Verdict.VACUOUS
    assert found["EXTERNAL-HIT"].required
    assert found["LOCAL-HIT"].verdict is Verdict.HOLDS_WITHIN
    assert found[EVENT_SHARES].verdict is Verdict.UNKNOWN
    assert "external load" in found[EVENT_SHARES].reason


def test_shares_are_those_of_traces() -> None:
    course = courses_on(RELEASE)[0]
    outcome = Outcome(RELEASE, POLICY)
    outcome.traces[course] = 4
    outcome.happened += [frozenset({"PREEMPTED"}), frozenset({"PREEMPTED", "EXTERNAL-HIT"}), frozenset(), frozenset()]
    found = results_of(outcome)
    assert found["PREEMPTED"].detail == {"kind": "sometimes", "traces": 2, "percent": 50}
    assert found[EVENT_SHARES].detail["external load"] == {"percent": 25, "elsewhere": 51}
    assert "partial tail" not in found[EVENT_SHARES].detail


def test_every_share_is_of_events_that_some_course_awaits() -> None:
    awaited = frozenset[str]().union(*(events_of(course, POLICY) for course in courses_on(RELEASE)))
    assert all(share.events <= awaited for share in SHARES)
    assert not awaited & NOT_DRAWN


def test_profiles_differ_in_their_size() -> None:
    sizes = [profile.traces for profile in PROFILES.values()]
    assert sizes == sorted(sizes)


def test_a_block_that_is_none_ends_the_run() -> None:
    """As that of 0.28.0 does with two full-attention specs: its count of free blocks is too high."""

    class HandsOutTheEndOfItsQueue:
        def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
            return {"step": {"taken": [3, -1]}}

    engine = SubjectEngine(hybrid(), POLICY, cast(SubjectProcess, HandsOutTheEndOfItsQueue()))
    failure = engine.act(Step())
    assert isinstance(failure, Failure)
    assert failure.kind == "InvalidBlock"
