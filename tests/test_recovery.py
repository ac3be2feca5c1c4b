"""What the releases make of failed loads. Expected values follow from reading `_handle_invalid_blocks` of each."""

from __future__ import annotations

import attrs
import pytest

from model.actions import (
    Action,
    Arrive,
    Drain,
    EndLoad,
    Execute,
    FailedBlock,
    LeafAnswers,
    Schedule,
    ScriptedAnswer,
    Step,
)
from model.configuration import Configuration, Group, GroupKind, LoadFailure
from model.connector import Contract, Leaf
from model.release import Release
from model.rules.loads import FailedTransfer, Recovery, RunnerPosition
from model.system import System, apply, initial
from model.tokens import Segment
from properties.replay import Replay
from properties.twin import disagreement, end_load, execute, new_twin
from tests.small_runs import ATTENTION, V028, hybrid, run

STORE = Leaf("store", claims=False, contract=Contract.ENDPOINT)


def configuration(rule: Recovery, *groups: Group, budget: int = 8, **others: object) -> Configuration:
    base = hybrid(STORE, *groups, budget=budget)
    return attrs.evolve(base, release=Release(recovery=rule), **others)  # type: ignore[arg-type]


def arrive(name: str, shared: int, own: int, store: int = 0, output: int = 3, *, later: bool = False) -> Arrive:
    prompt = (Segment("x", shared), Segment(name, own))
    said = (LeafAnswers("store", (ScriptedAnswer(store, later), ScriptedAnswer(0))),)
    return Arrive(name, prompt, (Segment(f"{name}-out", output),), said)


def told(replayed: Replay) -> dict[str, str]:
    """The first message of each property that is violated."""
    return {violation.property: violation.message for violation in reversed(replayed.violations)}


def after(of: Configuration, *actions: Action) -> System:
    """The system after the actions; the numeric twin agrees on the way."""
    system, twin = initial(of), new_twin(of)
    for action in actions:
        before = system
        system, observations = apply(system, V028, action)
        for observation in observations:
            if isinstance(action, EndLoad):
                for load in before.scheduler.requests[action.request].loads:
                    twin = end_load(of, twin, load, action.succeeded)
            if observation.plan is not None and observation.execution is not None:
                twin, outputs = execute(of, twin, observation.plan)
                flagged = {read.request for read in observation.execution.bad_reads}
                assert disagreement(of, observation.plan, outputs, flagged) == ()
    return system


FAILS = (arrive("r", 4, 2, store=4), Step(failed_loads=("r",)))


def test_preempted_requests_start_again_with_nothing() -> None:
    of = configuration(Recovery.PREEMPTED)
    assert run(V028, of, *FAILS, Drain()).violations == ()
    request = after(of, *FAILS).scheduler.requests["r"]
    assert (request.computed, request.tables, len(request.tokens)) == (0, (), 6)


def test_several_groups_stop_the_engine_up_to_029() -> None:
    """Record 29 (vllm #50388)."""
    replayed = run(V028, configuration(Recovery.ONE_GROUP), *FAILS, Drain())
    assert "the engine stops" in told(replayed)["LOAD-ROLLBACK"]
    assert replayed.observations[-1].after.assertion


def test_in_place_a_recurrent_group_keeps_null_columns_and_its_hashes() -> None:
    """What 0.30 does with several groups: 0 computed tokens, in the tables of R = 4."""
    of = configuration(Recovery.IN_PLACE)
    system = after(of, *FAILS)
    request = system.scheduler.requests["r"]
    assert (request.computed, len(request.tokens)) == (0, 6)
    assert [[bool(block) for block in table] for table in request.tables] == [[True] * 3, [False, True, True]]
    assert len(system.scheduler.pool.cached) > 0
    found = told(run(V028, of, *FAILS, Step()))
    assert "is still cached for" in found["LOAD-ROLLBACK"]
    assert "STATE-LABEL" in found
    found = told(run(V028, of, *FAILS, Step(budget=2)))
    assert "writes to the null block" in found["OWN-EXCLUSIVE"]


def test_in_place_with_one_group_keeps_what_lies_below_the_first_failed_block() -> None:
    of = configuration(Recovery.IN_PLACE, ATTENTION)
    fails = (arrive("r", 6, 3, store=6), Step(failed_blocks=(FailedBlock("r", 0, 1),)))
    assert after(of, *fails).scheduler.requests["r"].computed == 2
    assert after(of, *fails, Step()).scheduler.requests["r"].computed == 9
    # The hashes stay until the blocks are computed again; attention writes come first in a step, so that nobody reads
    # wrongly if that is in the next one.
    assert set(told(run(V028, of, *fails, arrive("s", 6, 1), Drain()))) == {"LOAD-ROLLBACK", "STATE-LABEL"}


def test_a_failed_synchronous_load_goes_unnoticed_from_031() -> None:
    of = configuration(Recovery.UNNOTICED)
    replayed = run(V028, of, *FAILS)
    assert [each.message for each in replayed.violations if each.property == "LOAD-ROLLBACK"][:2] == [
        "r: its load failed, and output that was computed from it is kept",
        "r: its load of [0, 4) failed, and it goes on from 6; all groups are valid up to 0",
    ]
    assert len(after(of, *FAILS).scheduler.requests["r"].tokens) == 7


@pytest.mark.parametrize("rule", [Recovery.PREEMPTED, Recovery.IN_PLACE])
def test_requests_fail_with_their_loads_if_they_are_to(rule: Recovery) -> None:
    of = configuration(rule, load_failure=LoadFailure.FAIL)
    assert run(V028, of, *FAILS, arrive("s", 4, 1), Drain()).violations == ()
    system = after(of, *FAILS)
    assert not system.scheduler.requests
    assert not system.scheduler.pool.cached


def test_a_request_fails_with_its_asynchronous_load_if_it_is_to() -> None:
    of = configuration(Recovery.PREEMPTED, load_failure=LoadFailure.FAIL)
    actions = (arrive("r", 4, 3, store=4, later=True), Step(), EndLoad("r", succeeded=False))
    assert run(V028, of, *actions, Drain()).violations == ()
    assert not after(of, *actions).scheduler.requests


@pytest.mark.parametrize("group", [0, 1])
def test_one_failed_block_is_enough(group: int) -> None:
    fails = (arrive("r", 4, 3, store=4), Step(failed_blocks=(FailedBlock("r", group, 1),)))
    assert run(V028, configuration(Recovery.PREEMPTED), *fails, Drain()).violations == ()
    assert "LOAD-ROLLBACK" in told(run(V028, configuration(Recovery.UNNOTICED), *fails))


def test_a_copy_of_what_a_failed_load_left_is_withdrawn_too() -> None:
    """A step in flight moves the request's own partial tail, computed from the load, to a copy."""
    of = configuration(Recovery.PREEMPTED, ATTENTION, Group(GroupKind.MAMBA, 8), steps_in_flight=2, budget=5)
    actions = (arrive("r", 0, 3, store=1), Schedule(), Schedule(), Execute(failed_loads=("r",)), Execute())
    seen = run(V028, of, *actions)
    assert [each.plan.copies for each in seen.observations if each.plan is not None][-1]
    assert seen.violations == ()


def test_in_place_the_output_in_flight_of_a_poisoned_request_is_kept() -> None:
    """Record 30 (vllm #56733)."""
    actions = (arrive("r", 4, 3, store=4), Schedule(), Schedule(), Execute(failed_loads=("r",)), Execute())
    found = run(V028, configuration(Recovery.IN_PLACE, steps_in_flight=2), *actions).violations
    assert "r: its load failed, and output that was computed from it is kept" in [each.message for each in found]
    assert not told(run(V028, configuration(Recovery.PREEMPTED, steps_in_flight=2), *actions, Drain()))


def test_a_runner_that_keeps_its_position_computes_garbage_after_a_rewind() -> None:
    """Record 31 (vllm #49250): nothing was loaded, and output is another than without a connector."""
    own = Release(recovery=Recovery.IN_PLACE, runner_position=RunnerPosition.OWN)
    of = attrs.evolve(configuration(Recovery.IN_PLACE, ATTENTION), release=own)
    actions = (*FAILS, Step())
    messages = [v.message for v in run(V028, of, *actions).violations if v.action == 2]
    assert "r: its load failed, and output that was computed from it is kept" in messages
    planned = attrs.evolve(own, runner_position=RunnerPosition.PLANNED)
    assert not [v for v in run(V028, attrs.evolve(of, release=planned), *actions).violations if v.action == 2]


def test_a_transfer_that_failed_and_counts_as_loaded() -> None:
    """Record 68 (SGLang #30986)."""
    actions = (arrive("r", 4, 3, store=4, later=True), Step(), EndLoad("r", succeeded=False), Step())
    of = configuration(Recovery.PREEMPTED)
    assert run(V028, of, *actions, Drain()).violations == ()
    kept = attrs.evolve(of, release=Release(failed_transfer=FailedTransfer.KEPT))
    assert told(run(V028, kept, *actions)).keys() >= {"LOAD-ROLLBACK", "HIT-RESUME", "HIT-COVER"}
