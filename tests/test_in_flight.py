"""Several steps in flight: what is scheduled is not executed yet, and requests end, or are preempted, in between."""

from __future__ import annotations

import random

import attrs
import pytest

from model.actions import (
    Abort,
    Action,
    Arrive,
    Drain,
    EndLoad,
    Execute,
    LeafAnswers,
    Preempt,
    Reset,
    Schedule,
    ScriptedAnswer,
    Step,
)
from model.configuration import Configuration, Eviction
from model.connector import Connector
from model.errors import IllegalAction
from model.policies import POLICIES
from model.release import NEWEST, Release
from model.rules.loads import Recovery
from model.rules.scheduling import AbortedChunks, Freeing, Retirement, StateRetirement, Visibility
from model.system import apply, initial
from model.tokens import Segment
from model.trace import Trace
from properties.features import Feature
from properties.invariant import Violation
from properties.judge import violations
from properties.replay import replay
from properties.twin import disagreement, end_load, execute, new_twin
from solver.scope import Scope, ScopeError
from subjects.generation import random_run
from tests.small_runs import ATTENTION, CLAIMER, MAMBA, STORE, V028, WINDOW, hybrid, run


def two_steps(
    connector: Connector | None = None, release: Release = NEWEST, budget: int = 2, pool: int = 40
) -> Configuration:
    return attrs.evolve(hybrid(connector, budget=budget), steps_in_flight=2, release=release, pool_blocks=pool)


def arrive(name: str, shared: int, own: int, output: int = 1, *, store: int = 0, later: bool = False) -> Arrive:
    prompt = (Segment("x", shared), Segment(name, own))
    answers = (LeafAnswers("store", (ScriptedAnswer(store, later),)),) if store else ()
    return Arrive(name, prompt, (Segment(f"{name}-out", output),), answers)


def violated(configuration: Configuration, *actions: Action) -> set[str]:
    return {violation.property for violation in replay(Trace("test", configuration, actions), V028).violations}


def test_a_second_step_is_scheduled_before_the_first_has_executed() -> None:
    seen = run(V028, two_steps(), arrive("a", 4, 1, 3), *[Schedule()] * 2, *[Execute(), Schedule()] * 4, Drain())
    assert seen.violations == ()
    chunks = [
        (chunk.computed, chunk.end) for each in seen.observations if each.planned for chunk in each.planned.chunks
    ]
    # The output tokens are scheduled as placeholders; after the third nothing is left to schedule.
    assert chunks == [(0, 2), (2, 4), (4, 5), (5, 6), (6, 7)]
    assert not seen.observations[-1].after.scheduler.requests


def test_output_becomes_known_when_the_step_has_executed() -> None:
    system = initial(two_steps(budget=8))
    lengths = []
    for action in (arrive("a", 4, 1, 3), Schedule(), Schedule(), Execute(), Schedule(), Execute()):
        system, _ = apply(system, V028, action)
        request = system.scheduler.requests["a"]
        lengths.append((len(request.tokens), request.placeholders, request.in_flight, request.computed))
    assert lengths == [(5, 0, 0, 0), (5, 0, 4, 4), (5, 1, 5, 5), (5, 1, 1, 5), (5, 2, 2, 6), (6, 1, 1, 6)]


def test_what_is_scheduled_may_not_exceed_the_steps_in_flight() -> None:
    for configuration, actions, reason in (
        (two_steps(), (Schedule(), Schedule(), Schedule()), "2 steps are in flight already"),
        (two_steps(), (Schedule(), Step()), "steps are in flight"),
        (two_steps(), (Execute(),), "no step is in flight"),
        (hybrid(), (Schedule(),), "with one step in flight"),
    ):
        with pytest.raises(IllegalAction, match=reason):
            run(V028, configuration, *actions)


def test_a_search_refuses_several_steps_in_flight() -> None:
    with pytest.raises(ScopeError, match="one step in flight"):
        Scope("two", two_steps(), (arrive("a", 4, 1),))


SAME_STEP = (arrive("a", 4, 1), arrive("b", 4, 2), Step())


def test_a_state_that_is_written_in_the_same_step_is_hit_under_the_first_rule() -> None:
    """Record 14 (vllm #29387)."""
    early = attrs.evolve(hybrid(budget=8), release=Release(visibility=Visibility.SAME_STEP))
    assert "STATE-VISIBLE" in violated(early, *SAME_STEP)
    for later in (Visibility.NEXT_STEP, Visibility.COMMITTED):
        assert not violated(attrs.evolve(early, release=Release(visibility=later)), *SAME_STEP)


IN_FLIGHT = (arrive("a", 6, 1), Schedule(), arrive("b", 6, 2), Schedule())


def test_a_state_in_flight_may_be_hit_because_steps_execute_in_order() -> None:
    seen = run(V028, two_steps(budget=8), *IN_FLIGHT, Drain())
    assert seen.violations == ()
    assert [(each.request, each.local) for each in seen.admissions] == [("a", 0), ("b", 6)]


def test_a_state_in_flight_is_not_hit_once_committed_states_are_asked_for() -> None:
    seen = run(V028, two_steps(budget=8, release=Release(visibility=Visibility.COMMITTED)), *IN_FLIGHT)
    assert seen.observations[-1].put_off == ("b",)


@pytest.mark.parametrize(
    ("visibility", "expected"),
    [(Visibility.NEXT_STEP, {"HIT-RESUME", "HIT-COVER", "STATE-LABEL"}), (Visibility.COMMITTED, set())],
)
def test_a_checkpoint_whose_chunk_never_runs(visibility: Visibility, expected: set[str]) -> None:
    """Record 15 (vllm #56525): published when scheduled, aborted before it has executed, hit by the retry."""
    rules = Release(visibility=visibility, aborted_chunks=AbortedChunks.CANCELLED)
    actions = (arrive("a", 6, 1), Schedule(), Abort("a"), arrive("b", 6, 1), Schedule(), Execute(), Execute())
    assert violated(two_steps(budget=8, release=rules), *actions) == expected


def test_the_chunks_of_an_aborted_request_run_all_the_same() -> None:
    actions = (arrive("a", 6, 1), Schedule(), Abort("a"), arrive("b", 6, 1), Schedule(), Drain())
    seen = run(V028, two_steps(budget=8), *actions)
    assert seen.violations == ()
    assert seen.admissions[-1].local == 6


FREED_IN_FLIGHT = (
    arrive("a", 0, 5, 2),
    Schedule(),
    Schedule(),
    Abort("a"),
    Execute(),
    arrive("b", 6, 1, store=6, later=True),
    Schedule(),
    EndLoad("b"),
    Execute(),
    Execute(),
)


@pytest.mark.parametrize(("freeing", "expected"), [(Freeing.AT_ONCE, True), (Freeing.FENCED, False)])
def test_an_asynchronous_load_into_blocks_that_a_step_in_flight_still_writes(freeing: Freeing, expected: bool) -> None:
    """vllm #45357: the load is not ordered after the chunk of the request that had the blocks before."""
    assert bool(violated(two_steps(STORE, Release(freeing=freeing), budget=4), *FREED_IN_FLIGHT, Drain())) is expected


def test_fenced_blocks_are_free_once_the_step_has_executed() -> None:
    system = initial(two_steps(STORE, budget=8))
    free = []
    for action in (arrive("a", 4, 1, 2), Schedule(), Abort("a"), Execute()):
        system, (observation,) = apply(system, V028, action)
        assert violations(observation) == ()
        free.append(len(system.scheduler.pool.free))
    assert free == [39, 36, 36, 39]


WINDOW_LEFT_IN_FLIGHT = (
    arrive("a", 0, 11),
    Schedule(),
    Execute(),
    Schedule(),
    arrive("b", 2, 1, store=2, later=True),
    Schedule(),
)


@pytest.mark.parametrize("retirement", Retirement)
def test_a_window_is_retired_under_a_step_in_flight(retirement: Retirement) -> None:
    """vllm #47728: an asynchronous load fills a block that a step in flight still reads."""
    small = two_steps(STORE, Release(retirement=retirement), budget=4, pool=13)
    small = attrs.evolve(small, groups=(ATTENTION, WINDOW))
    seen = run(V028, small, *WINDOW_LEFT_IN_FLIGHT)
    assert seen.violations == ()
    if retirement is Retirement.SCHEDULED:
        assert "OWN-EXCLUSIVE" in violated(small, *WINDOW_LEFT_IN_FLIGHT, EndLoad("b"), Execute())
    else:
        assert [each.request for each in seen.admissions] == ["a"]
        assert not violated(small, *WINDOW_LEFT_IN_FLIGHT, Drain())


@pytest.mark.parametrize(
    ("rule", "found"), [(StateRetirement.TO_THE_FIRST_NULL, {"OWN-LEAK"}), (StateRetirement.EVERY_COLUMN, set())]
)
def test_states_between_null_columns_pile_up(rule: StateRetirement, found: set[str]) -> None:
    """Seen on vLLM 0.28.0 with asynchronous scheduling: each chunk of several blocks leaves its state behind."""
    configuration = two_steps(release=Release(state_retirement=rule), budget=4)
    actions = (arrive("a", 0, 33), Schedule(), *[Schedule(), Execute()] * 8, Drain())
    assert violated(configuration, *actions) == found


def test_a_preempted_request_gets_its_output_in_flight_before_it_runs_again() -> None:
    system = initial(two_steps(budget=8))
    for action in (arrive("a", 4, 1, 3), Schedule(), Schedule(), Execute(), Preempt(), Schedule()):
        system, (observation,) = apply(system, V028, action)
        assert violations(observation) == ()
    assert observation.planned is not None
    assert observation.planned.chunks == ()
    system, _ = apply(system, V028, Execute())
    assert len(system.scheduler.requests["a"].tokens) == 6
    system, _ = apply(system, V028, Drain())
    assert not system.scheduler.requests


def test_a_reset_drops_output_in_flight() -> None:
    system = initial(two_steps(budget=8))
    for action in (arrive("a", 4, 1, 3), Schedule(), Schedule(), Execute(), Reset(), Schedule(), Execute(), Execute()):
        system, (observation,) = apply(system, V028, action)
        assert violations(observation) == ()
    assert len(system.scheduler.requests["a"].tokens) == 5


FAILED_IN_FLIGHT = (
    arrive("r", 4, 5, 2, store=4),
    Schedule(),
    Schedule(),
    arrive("s", 4, 3),
    Execute(failed_loads=("r",)),
    Drain(),
)


def test_a_failed_load_undoes_the_steps_that_were_scheduled_after_it() -> None:
    seen = run(V028, two_steps(STORE, budget=4), *FAILED_IN_FLIGHT)
    assert seen.violations == ()
    assert any(each.rolled_back == ("r",) for each in seen.observations)


def test_what_an_aborted_request_reads_in_flight_counts_for_nothing() -> None:
    """`b` hits what `r` computes from its load. With `b` aborted, it gets no output of the step that reads it; what the
    step leaves in the cache is judged all the same, and withdrawn."""
    actions = (
        arrive("r", 6, 1, 2, store=4),
        Schedule(),
        arrive("b", 6, 5),
        Schedule(),
        Abort("b"),
        Execute(failed_loads=("r",)),
        Execute(),
    )
    assert run(V028, two_steps(STORE, budget=20), *actions, Drain()).violations == ()
    unnoticed = attrs.evolve(NEWEST, recovery=Recovery.UNNOTICED)
    seen = run(V028, two_steps(STORE, unnoticed, budget=20), *actions)
    assert {violation.message[:2] for violation in seen.violations if violation.property == "HIT-RESUME"} == {"r:"}
    left = [violation.message for violation in seen.violations if violation.property == "STATE-LABEL"]
    assert any("is cached for 10 tokens" in message and "it holds garbage (tainted)" in message for message in left)


def random_action(choose: random.Random, arrived: list[str]) -> Action:
    kind = choose.choice(
        ["arrive"] * 3 + ["schedule", "execute"] * 6 + ["fail", "drain", "end", "end", "preempt", "abort", "reset"]
    )
    request = f"r{len(arrived) + 1}"
    some = choose.choice(arrived or [request])
    match kind:
        case "arrive":
            prompt = (Segment("x", choose.randint(1, 9)), Segment(request, choose.randint(0, 3)))
            answer = ScriptedAnswer(choose.choice([0, 0, 2, 4, 5]), choose.random() < 0.6)
            leaf = choose.choice(["store", "claimer"])
            return Arrive(
                request, prompt, (Segment(f"o{request}", choose.randint(1, 4)),), (LeafAnswers(leaf, (answer,)),)
            )
        case "end":
            return EndLoad(some, choose.random() < 0.7)
        case "preempt":
            return Preempt()
        case "abort":
            return Abort(some)
        case "reset":
            return Reset()
        case "drain":
            return Drain()
        case "fail":
            return Execute(failed_loads=tuple(arrived))
        case "execute":
            return Execute()
        case _:
            return Schedule(budget=choose.choice([None, 2, 5]))


def found_in_random_runs(configuration: Configuration, seeds: range) -> list[Violation]:
    """Everything that is violated, while the numeric twin follows and agrees."""
    found: list[Violation] = []
    for seed in seeds:
        choose, arrived = random.Random(seed), list[str]()
        system, twin = initial(configuration), new_twin(configuration)
        for _ in range(60):
            action = random_action(choose, arrived)
            try:
                after, observations = apply(system, POLICIES["reference"], action)
            except IllegalAction:
                continue
            if isinstance(action, Arrive):
                arrived.append(action.request)
            for observation in observations:
                if isinstance(action, EndLoad):
                    for load in observation.before.scheduler.requests[action.request].loads:
                        twin = end_load(configuration, twin, load, action.succeeded)
                if observation.plan is not None and observation.execution is not None:
                    twin, outputs = execute(configuration, twin, observation.plan)
                    flagged = {read.request for read in observation.execution.bad_reads}
                    assert disagreement(configuration, observation.plan, outputs, flagged) == ()
                found += violations(observation)
            system = after
            if found or system.assertion:
                break
    return found


@pytest.mark.parametrize("steps", [2, 3])
@pytest.mark.parametrize("connector", [None, STORE, CLAIMER])
def test_random_runs_violate_nothing(connector: Connector | None, steps: int) -> None:
    for groups in ((ATTENTION, MAMBA), (ATTENTION, WINDOW, MAMBA, MAMBA)):
        configuration = attrs.evolve(
            two_steps(connector, budget=5, pool=30 if connector is None else 24), steps_in_flight=steps, groups=groups
        )
        assert found_in_random_runs(configuration, range(15)) == []


@pytest.mark.parametrize(
    "release", [Release(visibility=Visibility.SAME_STEP), Release(aborted_chunks=AbortedChunks.CANCELLED)]
)
def test_random_runs_find_each_older_rule(release: Release) -> None:
    configuration = attrs.evolve(two_steps(STORE, release, budget=5, pool=24), groups=(ATTENTION, WINDOW, MAMBA))
    assert found_in_random_runs(configuration, range(100))


def test_blocks_of_a_copy_wait_for_the_step_that_copies_them() -> None:
    waited = 0
    for seed in range(4):
        drawn = random_run(
            seed,
            V028,
            second_attention=None,
            eviction=Eviction.LRU,
            features=frozenset({Feature.STEPS_IN_FLIGHT, Feature.PARTIAL_TAILS}),
            release=NEWEST,
            actions=25,
        )
        fenced = drawn.trace.configuration.connector is not None
        for _, observation in drawn.numbered:
            plan, after = observation.planned, observation.after.scheduler
            if plan is None or not plan.copies or not plan.chunks or observation.plan is not None:
                continue
            ends = {block for copy in plan.copies for block in (copy.source, copy.destination)}
            assert (ends <= {block for blocks in after.in_flight[-1].freed for block in blocks}) is fenced
            waited += fenced
    assert waited
