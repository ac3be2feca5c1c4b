"""Scheduling by priority: who waits behind whom, who is preempted, and what becomes of a chunk of its own step."""

from __future__ import annotations

import attrs
import pytest

from hitbound.step_text import changes_of, configuration_line, title_of
from model.actions import Action, Arrive, LeafAnswers, Schedule, ScriptedAnswer, Step
from model.configuration import Configuration, Group, GroupKind, Scheduling
from model.connector import Contract, Leaf
from model.release import NEWEST, Release
from model.rules.scheduling import Freeing, NextRunning, WaitingOrder
from model.store_rules import StoreRules
from model.system import Observation
from model.tokens import Segment
from model.trace import Trace
from properties.minimise import minimise
from solver.scope import Scope, ScopeError
from tests.small_runs import ATTENTION, V028, hybrid, run

WIDE = (Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.MAMBA, 4))


def arrive(name: str, prompt: int, output: int, priority: int) -> Arrive:
    return Arrive(name, (Segment(name, prompt),), (Segment(f"{name}-out", output),), priority=priority)


def by_priority(
    *groups: Group, pool: int = 40, release: Release = NEWEST, connector: Leaf | None = None, budget: int = 20
) -> Configuration:
    configuration = hybrid(connector, *(groups or (ATTENTION,)), budget=budget)
    return attrs.evolve(configuration, pool_blocks=pool, scheduling=Scheduling.PRIORITY, release=release)


def last(configuration: Configuration, *actions: Action) -> Observation:
    return run(V028, configuration, *actions).observations[-1]


def ran(observation: Observation) -> list[str]:
    assert observation.planned is not None
    return [chunk.request for chunk in observation.planned.chunks]


THREE = (arrive("late", 2, 1, 1), arrive("first", 2, 1, 0), arrive("second", 2, 1, 0))


def test_the_lowest_number_goes_first_and_then_who_arrived_first() -> None:
    """`Request.__lt__`."""
    assert ran(last(by_priority(), *THREE, Step())) == ["first", "second", "late"]
    first_come = attrs.evolve(by_priority(), scheduling=Scheduling.FCFS)
    assert ran(last(first_come, *THREE, Step())) == ["late", "first", "second"]


@pytest.mark.parametrize("rule", WaitingOrder)
def test_by_priority_a_request_that_was_skipped_has_no_precedence(rule: WaitingOrder) -> None:
    """Up to 0.30 the heads of both queues are compared; from 0.31 it is put back among those that wait."""
    unknown = (LeafAnswers("store", (ScriptedAnswer(None), ScriptedAnswer(0))),)
    store = Leaf("store", claims=False, contract=Contract.BACKED)
    configuration = by_priority(connector=store, release=Release(waiting_order=rule))
    asks = attrs.evolve(arrive("asks", 2, 1, 1), answers=unknown)
    assert ran(last(configuration, asks, Step(), arrive("better", 2, 1, 0), Step())) == ["better", "asks"]
    first_come = attrs.evolve(configuration, scheduling=Scheduling.FCFS)
    assert ran(last(first_come, asks, Step(), arrive("better", 2, 1, 0), Step())) == ["asks", "better"]


OVERTAKEN = (arrive("low", 2, 4, 1), Step(), arrive("high", 4, 2, 0), arrive("other", 1, 3, 0), Step())
"""`low` has computed 3 tokens and is about to fill its second block, `high` needs a third one, `other` none."""


def test_who_is_last_in_turn_is_preempted_though_it_is_in_the_step() -> None:
    """And what it was given of the budget goes to others: `token_budget += restored`."""
    seen = last(by_priority(pool=6), *OVERTAKEN, Step(budget=2))
    assert (seen.preempted, seen.taken_out) == (("low",), ("low",))
    assert ran(seen) == ["high", "other"]
    low = seen.after.scheduler.requests["low"]
    assert (low.computed, low.in_flight, low.tables) == (0, 0, ())
    assert seen.after.scheduler.waiting == ("low",)


@pytest.mark.parametrize(
    ("rule", "run_on"),
    [
        (NextRunning.AFTER_ITSELF_TOO, ["high", "other"]),
        (NextRunning.UNLESS_ITSELF, []),
        (NextRunning.MAY_PASS_OVER_ONE, []),
    ],
)
def test_who_comes_after_a_request_that_preempts_itself(rule: NextRunning, run_on: list[str]) -> None:
    """`low` needs a third block and is the last in turn. From 0.33 the loop goes on behind it."""
    configuration = by_priority(pool=6, release=Release(next_running=rule))
    seen = last(configuration, arrive("low", 3, 4, 1), *OVERTAKEN[1:], Step())
    assert (seen.preempted, seen.taken_out) == (("low",), ())
    assert ran(seen) == run_on


@pytest.mark.parametrize(
    ("rule", "run_on"),
    [
        (NextRunning.AFTER_ITSELF_TOO, ["high", "other"]),
        (NextRunning.UNLESS_ITSELF, ["high", "other"]),
        (NextRunning.MAY_PASS_OVER_ONE, ["high"]),
    ],
)
def test_who_comes_after_the_preemption_of_one_that_was_put_off_in_the_step(
    rule: NextRunning, run_on: list[str]
) -> None:
    """vLLM #49097: `low` has no aligned chunk of 3 tokens, `high` begins a block, and `other` comes after it."""
    configuration = by_priority(*WIDE, pool=9, release=Release(next_running=rule))
    arrivals = arrive("low", 20, 2, 1), Step(budget=4), arrive("high", 2, 5, 0), arrive("other", 1, 5, 0)
    seen = last(configuration, *arrivals, Step(budget=7), *[Step(budget=3)] * 3)
    assert (seen.preempted, seen.taken_out) == (("low",), ())
    assert ran(seen) == run_on


def test_the_step_itself_keeps_no_blocks_for_later() -> None:
    """With a connector, blocks of a chunk in flight are free only after it, and whoever has one is spared; not so who
    is only in the step under construction (`last_sched_seq` is set when that is complete)."""
    store = Leaf("store", claims=False, contract=Contract.BACKED)
    assert last(by_priority(pool=6, connector=store), *OVERTAKEN, Step()).taken_out == ("low",)
    in_flight = (*OVERTAKEN[:-1], Schedule(), Schedule())
    for rule, taken_out in ((Freeing.FENCED, ()), (Freeing.AT_ONCE, ("low",))):
        configuration = by_priority(pool=6, connector=store, release=Release(freeing=rule))
        assert last(attrs.evolve(configuration, steps_in_flight=2), *in_flight).taken_out == taken_out


def test_a_chunk_that_was_taken_out_is_not_saved() -> None:
    keeper = Leaf("keeper", claims=False, contract=Contract.ENDPOINT, store=StoreRules())
    seen = last(by_priority(pool=6, connector=keeper), *OVERTAKEN, Step())
    assert seen.taken_out == ("low",)
    assert {save.request for save in seen.saved} <= {"high", "other"}
    stored = [label for _, label in seen.after.worker.objects if label.prefix[0].startswith("low")]
    assert [len(label.prefix) for label in stored] == [2]


def test_the_exhaustive_search_refuses_priorities() -> None:
    with pytest.raises(ScopeError, match="does not know priorities"):
        Scope("priorities", by_priority(), (arrive("low", 2, 1, 1),))


def test_what_does_not_need_priorities_is_told_without_them() -> None:
    trace = Trace("two arrive", by_priority(), (arrive("low", 2, 1, 1), arrive("high", 2, 1, 0)))
    smaller = minimise(trace, lambda candidate: len(candidate.actions) == 2)
    assert smaller.configuration.scheduling is Scheduling.FCFS
    assert [action.priority for action in smaller.actions if isinstance(action, Arrive)] == [0, 0]


def test_a_drawing_names_priorities_and_who_was_taken_out() -> None:
    observations = run(V028, by_priority(pool=6), *OVERTAKEN, Step(budget=2)).observations
    assert title_of(observations[:1]) == "low (priority 1) arrives with low*2"
    assert "low was in the step already, and its chunk is taken out again" in changes_of(observations[-1:])
    assert "scheduled by priority" in configuration_line(by_priority())
    assert "priority" not in configuration_line(attrs.evolve(by_priority(), scheduling=Scheduling.FCFS))
