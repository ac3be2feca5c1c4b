"""The numeric twin: it computes what no cache computes exactly where the shadow memory has nothing to report."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from model import worker as shadow
from model.actions import Action, Arrive, Drain, EndLoad, LeafAnswers, Preempt, ScriptedAnswer, Step
from model.configuration import Configuration, ConfigurationClass, Eviction, Group, GroupKind, WorkerOrder
from model.connector import Contract, Leaf
from model.errors import IllegalAction
from model.execution import BadRead
from model.memory import Memory
from model.plan import StepPlan
from model.policies import POLICIES
from model.policy import Policy
from model.ready_connectors import DISHONEST
from model.system import Observation, apply, initial
from model.tokens import Prefix, Segment
from properties import toy_model, twin
from properties.features import Feature
from properties.fuzz import Profile, run_series
from properties.machine import Campaign
from properties.machines import machine_for
from properties.policy_guard import guarded
from properties.toy_model import cache_free_run
from properties.twin import TwinState, cache_free_output, disagreement, new_twin
from properties.verdict import Cell
from tests.worker_plans import HYBRID, PRODUCER, SCENARIOS, Event, LoadEnds, run, windowed, x


def disagreements(configuration: Configuration, events: tuple[Event, ...]) -> list[str]:
    """Where the twin and the shadow memory disagree about the events."""
    _, executions = run(configuration, events)
    state, steps = new_twin(configuration), iter(executions)
    lines: list[str] = []
    for event in events:
        if isinstance(event, LoadEnds):
            state = twin.end_load(configuration, state, event.load, event.succeeded)
            continue
        state, outputs = twin.execute(configuration, state, event)
        flagged = {read.request for read in next(steps).bad_reads}
        lines += disagreement(configuration, event, outputs, flagged)
    return lines


def test_numbers_depend_on_tokens_only() -> None:
    # Pinned: neither Python's hash seed nor the platform may change a number.
    assert toy_model.embedding("x0") == 13755810796893522035
    assert cache_free_run(HYBRID.groups, x(3)).outputs[-1] == 14899995134077850487


@pytest.mark.parametrize("groups", [HYBRID.groups, windowed(3).groups, (*HYBRID.groups, *windowed(1).groups)])
def test_every_number_depends_on_all_tokens_before(groups: tuple[Group, ...]) -> None:
    run_of_x = cache_free_run(groups, x(6))
    for changed in range(6):
        other: Prefix = (*x(changed), "other", *x(6)[changed + 1 :])
        run_of_other = cache_free_run(groups, other)
        same = [mine == theirs for mine, theirs in zip(run_of_x.outputs, run_of_other.outputs, strict=True)]
        assert same == [True] * changed + [False] * (6 - changed)
        for group, kv in run_of_x.kv.items():
            upper = [mine[1] == theirs[1] for mine, theirs in zip(kv, run_of_other.kv[group], strict=True)]
            assert upper == same
        for group, states in run_of_x.states.items():
            equal = [mine == theirs for mine, theirs in zip(states, run_of_other.states[group], strict=True)]
            assert equal == [True, *same]


def test_a_run_in_blocks_ends_with_the_numbers_of_a_run_without() -> None:
    state = new_twin(HYBRID)
    for plan in PRODUCER:
        state, outputs = twin.execute(HYBRID, state, plan)
        assert outputs["p"] == cache_free_output(HYBRID, plan.chunks[0])
    truth = cache_free_run(HYBRID.groups, x(4))
    assert state.cells[3] == (truth.kv[0][2], truth.kv[0][3])
    assert state.cells[4] == (truth.states[1][4], truth.states[1][4])


@pytest.mark.parametrize("name", SCENARIOS)
def test_twin_and_shadow_memory_agree_on_hand_written_plans(name: str) -> None:
    assert disagreements(*SCENARIOS[name]) == []


def test_a_disagreement_is_told_both_ways() -> None:
    plan = StepPlan(chunks=PRODUCER[0].chunks)
    right = {"p": cache_free_output(HYBRID, plan.chunks[0])}
    assert disagreement(HYBRID, plan, right, set()) == disagreement(HYBRID, plan, {"p": (0, 0)}, {"p"}) == ()
    assert disagreement(HYBRID, plan, right, {"p"}) == (
        "p [0, 2): the twin's output is that of a cache-free run, the shadow memory flagged a bad read",
    )
    assert disagreement(HYBRID, plan, {"p": (0, 0)}, set()) == (
        "p [0, 2): the twin's output differs, the shadow memory flagged no bad read",
    )


def sees_everything(memory: Memory, block: int, needed: object) -> bool:
    return True


def sees_nothing(memory: Memory, block: int, needed: object) -> bool:
    return False


def forgets_taint(memory: Memory, block: int, group: int, start: int) -> Memory:
    return memory


def reads_no_attention(step: shadow._Execution, chunk: object) -> Iterator[BadRead]:
    return iter(())


@pytest.mark.mutants
@pytest.mark.parametrize(
    ("owner", "part", "broken", "scenario"),
    [
        (Memory, "holds", sees_everything, "wrong state"),
        (Memory, "holds", sees_nothing, "producer"),
        (Memory, "taint", forgets_taint, "wrong through sharing"),
        (Memory, "wipe", lambda memory, blocks: memory, "block taken from under a request"),
        (shadow._Execution, "_bad_attention_reads", reads_no_attention, "block taken from under a request"),
        (shadow._Execution, "copy_states", lambda step: None, "producer"),
        (shadow, "_source_column", lambda configuration, mirror, chunk: 0, "consumer"),
        (shadow, "write_loads", lambda configuration, memory, loads, objects: memory, "aligned load"),
    ],
)
def test_the_twin_sees_that_the_shadow_memory_is_broken(
    monkeypatch: pytest.MonkeyPatch, owner: object, part: str, broken: object, scenario: str
) -> None:
    assert disagreements(*SCENARIOS[scenario]) == []
    monkeypatch.setattr(owner, part, broken)
    assert disagreements(*SCENARIOS[scenario]) != []


@attrs.define
class Run:
    """A run of the model that the twin follows, and how many of its chunks were sound or not."""

    twin: TwinState
    sound: int = 0
    unsound: int = 0

    def follow(self, observation: Observation) -> None:
        configuration = observation.after.configuration
        if isinstance(observation.action, EndLoad):
            for load in observation.before.scheduler.requests[observation.action.request].loads:
                self.twin = twin.end_load(configuration, self.twin, load, observation.action.succeeded)
        if observation.plan is None or observation.execution is None:
            return
        self.twin, outputs = twin.execute(configuration, self.twin, observation.plan)
        flagged = {read.request for read in observation.execution.bad_reads}
        assert disagreement(configuration, observation.plan, outputs, flagged) == ()
        self.sound += sum(chunk.sound for chunk in observation.execution.chunks)
        self.unsound += sum(not chunk.sound for chunk in observation.execution.chunks)


def random_action(choose: random.Random, arrived: list[str], leaf: Leaf, unit: int) -> Action:
    """Arrivals that share prefixes, steps, preemptions, ends of loads; many of them not possible where they come."""
    kind = choose.choice(["arrive", "arrive", "step", "step", "step", "fail", "drain", "end", "preempt"])
    request = f"r{len(arrived) + 1}"
    match kind:
        case "arrive":
            prompt = (Segment("x", choose.randint(1, 5 * unit)), Segment(request, choose.randint(0, unit)))
            answer = ScriptedAnswer(choose.randint(0, 4 * unit), choose.random() < 0.5)
            return Arrive(request, prompt, (Segment("o", 2),), (LeafAnswers(leaf.name, (answer,)),))
        case "end":
            return EndLoad(choose.choice(arrived or [request]), choose.random() < 0.7)
        case "preempt":
            return Preempt()
        case "drain":
            return Drain()
        case "fail":
            return Step(failed_loads=tuple(arrived))
        case _:
            return Step(budget=choose.choice([None, unit, 2 * unit + 1]))


def follow_a_random_run(policy: Policy, configuration: Configuration, leaf: Leaf, seed: int) -> Run:
    choose, run, arrived = random.Random(seed), Run(new_twin(configuration)), list[str]()
    system = initial(configuration)
    for _ in range(40):
        action = random_action(choose, arrived, leaf, configuration.hash_block)
        try:
            system, observations = apply(system, policy, action)
        except IllegalAction:
            continue
        if isinstance(action, Arrive):
            arrived.append(action.request)
        for observation in observations:
            run.follow(observation)
        if system.assertion:
            break
    return run


LEAVES = (Leaf("plain", False, Contract.BACKED), Leaf("claiming", True, Contract.ENDPOINT), *DISHONEST.values())


@pytest.mark.parametrize("order", WorkerOrder)
@pytest.mark.parametrize("policy", POLICIES)
def test_twin_and_shadow_memory_agree_on_runs_of_the_model(policy: str, order: WorkerOrder) -> None:
    full, mamba = Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.MAMBA, 2)
    sound = unsound = 0
    for seed, leaf in enumerate(LEAVES):
        for others in ((), (Group(GroupKind.SLIDING_WINDOW, 2, 4),)):
            configuration = Configuration((full, mamba, mamba, *others), 30, 8, leaf, worker_order=order)
            run = follow_a_random_run(POLICIES[policy], configuration, leaf, seed)
            sound, unsound = sound + run.sound, unsound + run.unsound
    # Agreement says something only if there was something to agree about.
    assert sound > 20
    assert unsound > 5


def test_the_twin_shares_nothing_with_the_shadow_memory() -> None:
    for module in (twin, toy_model):
        assert module.__file__ is not None
        tree = ast.parse(Path(module.__file__).read_text())
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert imported.isdisjoint({"model.memory", "model.worker", "model.loading", "model.execution"})


EXCLUDING = frozenset({Feature.STEPS_IN_FLIGHT, Feature.SPECULATION})
"""Features that no configuration has beside states in every block and internal checkpoints."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "left_out",
    [EXCLUDING, *(EXCLUDING - {one} for one in sorted(EXCLUDING, key=str))],
    ids=lambda left_out: "without " + ", ".join(sorted(feature.value for feature in left_out)),
)
def test_the_twin_agrees_where_features_are_combined(left_out: frozenset[Feature]) -> None:
    """All that go together, chunked local attention with peers and failed blocks among them: what is drawn can be
    built, and a TwinDisagreement would end the run."""
    cell = Cell(Contract.ENDPOINT, WorkerOrder.LOAD_BEFORE_COPY, ConfigurationClass.SECOND_ATTENTION_SPEC_PARTIAL_TAILS)
    features = frozenset(Feature) - left_out
    campaign = Campaign(guarded(POLICIES["reference"]), cell, Eviction.ADVERSARIAL, features=features)
    run_series(machine_for(campaign), Profile("combined", 40, 18, 1, 0, needs_events=False), 0)
    assert campaign.actions > 300
