"""Drafts with several steps in flight: a step is planned as if all drafts before it were right, and runs where it turns
out to begin.

The numbers are those of vLLM's `AsyncScheduler._update_after_schedule` and `Scheduler.update_from_output` (0.33).
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import attrs
import pytest

from model import output
from model.actions import Action, Arrive, Drain, Execute, Preempt, RejectedDrafts, Reset, Schedule
from model.configuration import Configuration, Group, GroupKind
from model.errors import IllegalAction
from model.policies import POLICIES
from model.system import apply, initial
from model.tokens import Segment
from properties.judge import events, violations
from tests.small_runs import V028, after, run

FULL, MAMBA = Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.MAMBA, 4)
ARRIVAL = Arrive("A", (Segment("x", 3),), (Segment("y", 12),))


def configured(drafts: int = 2, steps: int = 2, pool: int = 40) -> Configuration:
    return Configuration((FULL, MAMBA), pool_blocks=pool, budget=20, drafts=drafts, steps_in_flight=steps)


def wrong(drafts: int) -> Execute:
    return Execute(rejected=(RejectedDrafts("A", drafts),))


def test_drafts_are_taken_for_right_until_they_are_verified() -> None:
    lengths = []
    for count in range(1, 6):
        actions = (ARRIVAL, Schedule(), Schedule(), Execute(), Schedule(), wrong(2))[: count + 1]
        request = after(configured(), *actions)[0].scheduler.requests["A"]
        lengths.append((request.computed, len(request.tokens), request.placeholders, request.drafts))
    assert lengths == [(3, 3, 1, 2), (6, 3, 4, 2), (6, 4, 3, 2), (9, 4, 6, 2), (7, 5, 3, 2)]


@pytest.mark.parametrize("rejected", [0, 1, 2])
def test_a_step_in_flight_runs_where_its_request_is(rejected: int) -> None:
    actions = (ARRIVAL, Schedule(), Schedule(), Execute(), Schedule(), wrong(rejected), Execute())
    _, planned = after(configured(), *actions[:5])
    _, executed = after(configured(), *actions)
    assert planned.planned is not None
    assert executed.plan is not None
    assert [(chunk.computed, chunk.end) for chunk in planned.planned.chunks] == [(6, 9)]
    assert [(chunk.computed, chunk.end) for chunk in executed.plan.chunks] == [(6 - rejected, 9 - rejected)]
    _, seen = after(configured(), *actions[:6])
    assert ("REJECTED-IN-FLIGHT" in events(seen)) is (rejected > 0)


def test_a_rejection_from_before_a_preemption_does_not_count() -> None:
    """The output of the step is delivered, or dropped after a reset; what the request has computed since stays."""
    in_flight = (ARRIVAL, Schedule(), Schedule(), Execute())
    preempted, _ = after(configured(), *in_flight, Preempt(), wrong(1))
    assert (preempted.scheduler.requests["A"].computed, len(preempted.scheduler.requests["A"].tokens)) == (0, 6)
    reset = (*in_flight, Reset(), Schedule())
    computed = after(configured(), *reset)[0].scheduler.requests["A"].computed
    request = after(configured(), *reset, wrong(2))[0].scheduler.requests["A"]
    assert (request.computed, len(request.tokens)) == (computed, 4)
    assert after(configured(), *reset, wrong(2), Drain())[0].scheduler.requests == {}


# Each leaves out one part; the content is wrong then.
MUTANTS: dict[str, Callable[..., object]] = {
    "a step in flight runs where it was planned": lambda steps, request, rejected: steps,
    "it goes back a token too far": lambda steps, request, rejected: tuple(
        step.moved_back(request, rejected + 1) for step in steps
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_where_a_step_in_flight_runs_matters(monkeypatch: pytest.MonkeyPatch, mutant: str) -> None:
    actions = (ARRIVAL, Schedule(), Schedule(), Execute(), Schedule(), wrong(1), Execute(), Drain())
    assert run(V028, configured(), *actions).violations == ()
    monkeypatch.setattr(output, "after_rejection", MUTANTS[mutant])
    assert run(V028, configured(), *actions).violations


def random_actions(choose: random.Random) -> list[Action]:
    actions: list[Action] = []
    for number in range(6):
        name = f"r{number}"
        prompt = (Segment("x", choose.randint(1, 11)), Segment(name, choose.randint(0, 3)))
        actions.append(Arrive(name, prompt, (Segment(f"o{name}", choose.randint(1, 9)),)))
        for _ in range(choose.randint(2, 8)):
            rejected = tuple(RejectedDrafts(f"r{each}", choose.randint(1, 3)) for each in range(number + 1))
            budget = choose.choice([None, 4, 5])
            actions.append(choose.choice([Schedule(budget), Schedule(budget), Execute(rejected=rejected), Execute()]))
        if choose.random() < 0.3:
            actions.append(choose.choice([Preempt(), Reset()]))
    return actions


@pytest.mark.parametrize(("drafts", "steps"), [(1, 2), (3, 2), (2, 3)])
def test_random_runs_violate_nothing(drafts: int, steps: int) -> None:
    happened: set[str] = set()
    for seed in range(20):
        system = initial(configured(drafts, steps, pool=18))
        for action in random_actions(random.Random(seed)):
            with contextlib.suppress(IllegalAction):
                system, observations = apply(system, POLICIES["reference"], action)
                assert [violations(each) for each in observations] == [()] * len(observations)
                happened = happened.union(*map(events, observations))
    assert {"REJECTED-IN-FLIGHT", "PREEMPTED-IN-FLIGHT", "STATE-COPIED-BACK", "LOCAL-HIT"} <= happened


def test_more_room_is_needed_with_more_steps_in_flight() -> None:
    """Attention blocks for the drafts of each step, and a state for each step."""
    assert attrs.evolve(configured(), steps_in_flight=3).most_states == configured().most_states + 1
