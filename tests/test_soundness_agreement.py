"""The encoded transitions of the cache proof and the model agree, both ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import pytest
import z3

from model.actions import (
    Abort,
    Drain,
    EndLoad,
    EndSaves,
    Evict,
    Execute,
    LeafAnswers,
    Preempt,
    RejectedDrafts,
    Reset,
    Schedule,
    ScriptedAnswer,
    Step,
)
from model.configuration import ConfigurationClass, Eviction, Group, GroupKind, Scheduling, StateMode, WorkerOrder
from model.connector import Composite, Contract, Leaf
from model.policies import POLICIES
from model.pool import Label, Pool
from model.release import NEWEST
from model.rules.scheduling import PreemptedChunk
from model.rules.states import CheckpointStart, UnreservedCheckpoint
from model.store_rules import Guard, StoreRules
from model.tokens import Segment
from model.trace import Trace
from properties.features import Feature
from properties.fuzz import Profile, run_series
from properties.machine import Campaign
from properties.machines import machine_for
from properties.policy_guard import guarded
from properties.verdict import Cell
from solver.soundness.cells import ACTIONS, BEFORE, Row, row
from solver.soundness.state import State, at, content_at
from solver.soundness.stepping import commit_step
from solver.soundness.terms import BLOCK, Universal
from subjects.generation import random_run
from tests import soundness_agreement, soundness_follower
from tests.small_runs import FILLED, STORE, arrive, hybrid
from tests.soundness_agreement import Followed, Recorder, follow
from tests.soundness_follower import BY_NAME, Disagreement, Universe

REFERENCE = POLICIES["reference"]

CAMPAIGNS = (
    (ConfigurationClass.ONE_ATTENTION_SPEC, frozenset({Feature.STEPS_IN_FLIGHT, Feature.FAILED_BLOCKS})),
    (ConfigurationClass.ONE_ATTENTION_SPEC, frozenset({Feature.STORES, Feature.PEERS, Feature.STEPS_IN_FLIGHT})),
    (
        ConfigurationClass.SECOND_ATTENTION_SPEC_PARTIAL_TAILS,
        frozenset({Feature.PARTIAL_TAILS, Feature.DRAFT_MODEL, Feature.SPARSE_RETENTION, Feature.STEPS_IN_FLIGHT}),
    ),
    (
        ConfigurationClass.SECOND_ATTENTION_SPEC,
        frozenset({Feature.CHUNKED_LOCAL, Feature.STORES, Feature.FAILED_BLOCKS, Feature.STEPS_IN_FLIGHT}),
    ),
    (ConfigurationClass.ONE_ATTENTION_SPEC, frozenset({Feature.EVERY_STATE, Feature.STORES, Feature.FAILED_BLOCKS})),
    (
        ConfigurationClass.ONE_ATTENTION_SPEC_PARTIAL_TAILS,
        frozenset({Feature.INTERNAL_CHECKPOINT, Feature.PARTIAL_TAILS, Feature.SPARSE_RETENTION}),
    ),
    (
        ConfigurationClass.ONE_ATTENTION_SPEC,
        frozenset({Feature.SPECULATION, Feature.STEPS_IN_FLIGHT, Feature.FAILED_BLOCKS, Feature.INTERRUPTIONS}),
    ),
    (
        ConfigurationClass.SECOND_ATTENTION_SPEC_PARTIAL_TAILS,
        frozenset({Feature.SPECULATION, Feature.DRAFT_MODEL, Feature.PARTIAL_TAILS, Feature.STORES}),
    ),
    (
        ConfigurationClass.SECOND_ATTENTION_SPEC,
        frozenset({Feature.CONTEXT_PARALLEL, Feature.SKIPPED_READING, Feature.AUXILIARY_OUTPUTS})
        | {Feature.INTERRUPTIONS, Feature.STEPS_IN_FLIGHT},
    ),
)
"""What is drawn together."""

OUTSIDE = {
    Feature.PREFIX_REPLAY: "a request begins below what its blocks are filled to, which `start` forbids",
    Feature.PRIORITIES: "the newest rules leave the hashes of a preempted chunk; runs by hand follow the others",
}
"""Features that no campaign draws, and why."""

FUNCTIONS = {
    "decide": {"look up"},
    "adopt": {"look up", "drop lookup", "touch", "allocate", "await load"},
    "admit": {"drop lookup", "start loading"},
    "extend": {"allocate", "relocate", "copy for reader", "copy for producer"},
    "retire": {"retire"},
    "publish": {
        *("load in step", "start", "start after load", "forward chunk"),
        *("publish full", "publish checkpoint", "publish tail"),
    },
    "schedule": {"commit step", "save begins", "load begins"},
    "recover": {"end step", "lose step", "save ends"},
    "settle": {"free", "verify drafts"},
    "free": {"free"},
    "preempt": {"free", "preempt in step"},
    "finish": {"free", "abort loading"},
    "end_load": {"load commits", "load fails"},
    "done": {"save ends"},
    "evict": {"evict"},
    "reset": {"reset"},
}
"""Functions of the model that change the cache, and the transitions that they turn into."""

TAIL_GROUPS = (Group(GroupKind.FULL_ATTENTION, 2), Group(GroupKind.MAMBA, 4))


def followed(trace: Trace, patch: pytest.MonkeyPatch) -> Followed:
    with patch.context() as patched:
        return follow(trace, REFERENCE, patched, invariants=True)


def follow_all(traces: Iterable[Trace], patch: pytest.MonkeyPatch) -> Followed:
    """What all these runs take together."""
    runs = [followed(trace, patch) for trace in traces]
    return Followed(sum((run.taken for run in runs), Counter()), sum((run.mapped for run in runs), Counter()))


def follow_seeds(
    seeds: range,
    patch: pytest.MonkeyPatch,
    actions: int,
    *,
    features: frozenset[Feature] = frozenset(),
) -> Counter[str]:
    """The transitions of runs with one attention spec, and with a second one of either kind."""
    traces = []
    for seed in seeds:
        second = (None, GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW)[seed % 3]
        run = random_run(
            seed,
            REFERENCE,
            second_attention=second,
            eviction=(Eviction.ADVERSARIAL, Eviction.LRU)[seed % 2],
            actions=actions,
            features=features,
            release=NEWEST,
        )
        traces.append(run.trace)
    return follow_all(traces, patch).taken


def later(tokens: int) -> tuple[LeafAnswers, ...]:
    """The store loads so many tokens asynchronously, once."""
    return (LeafAnswers("store", (ScriptedAnswer(tokens, asynchronous=True), ScriptedAnswer(0))),)


def loads_that_outlive_their_step() -> Trace:
    """One commits, one fails, one is aborted before it ends; then the cache is reset."""
    probes = [attrs.evolve(arrive(name, 4, 2), answers=later(2)) for name in ("commits", "fails", "aborted")]
    actions = (
        *FILLED,
        Evict(0, "fill", 4),
        Evict(1, "fill", 4),
        *probes,
        Step(),
        Abort("aborted"),
        EndLoad("aborted", True),
        EndLoad("fails", False),
        EndLoad("commits", True),
        Drain(),
        Reset(),
    )
    return Trace("loads", hybrid(STORE, budget=20), actions)


def a_load_that_fails_in_its_step() -> Trace:
    actions = (
        *FILLED,
        Evict(0, "fill", 4),
        Evict(1, "fill", 4),
        arrive("probe", 4, 2, store=2),
        Step(failed_loads=("probe",)),
        Drain(),
    )
    return Trace("fails", hybrid(STORE), actions)


def a_reader_of_a_partial_tail() -> Trace:
    actions = (arrive("first", 7, 0), Drain(), arrive("second", 7, 3), Drain())
    return Trace("tail", hybrid(None, *TAIL_GROUPS, budget=20), actions)


def a_reader_of_part_of_a_block() -> Trace:
    """The attention of a whole block of 4 tokens is found, and a state after 2 of them."""
    groups = Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.MAMBA, 4)
    actions = (
        *(arrive("state", 2, 1), Drain(), Evict(0, "state", 2)),
        *(arrive("attention", 4, 2), Drain(), Evict(1, "attention", 4)),
        *(arrive("reader", 4, 3), Drain()),
    )
    return Trace("part of a block", attrs.evolve(hybrid(None, *groups, budget=20), hash_block=2), actions)


def a_tail_that_waits_for_its_copy(connector: Leaf | None) -> Trace:
    """Its reader is given up while the step that copies it is in flight: with a connector both blocks stay referenced
    until that has run."""
    actions = (
        *(arrive("first", 7, 0), Drain(), arrive("second", 7, 3), Schedule()),
        *(Abort("second"), arrive("third", 7, 2), Schedule(), Execute(), Execute(), Drain()),
    )
    configuration = attrs.evolve(hybrid(connector, *TAIL_GROUPS, budget=20), steps_in_flight=2)
    return Trace("tail in flight", configuration, actions)


def a_producer_that_runs_on() -> Trace:
    """Its tail moves to a copy; what it wrote stays where it was. Another request hits the copy."""
    long = attrs.evolve(arrive("first", 7, 0), output=(Segment("first-out", 3),))
    actions = (long, Drain(), arrive("second", 7, 3), Drain())
    return Trace("moved", hybrid(None, *TAIL_GROUPS, budget=20), actions)


def an_abort_between_two_steps() -> Trace:
    """Its chunk in flight is executed all the same, and another request hits what it writes."""
    actions = (
        arrive("first", 6, 0),
        Schedule(),
        Schedule(),
        Abort("first"),
        arrive("second", 6, 2),
        Execute(),
        Schedule(),
        Execute(),
        Execute(),
        Drain(),
    )
    return Trace("abort", attrs.evolve(hybrid(), steps_in_flight=2), actions)


def a_preemption_between_two_steps(connector: Leaf | None) -> Trace:
    """With a connector its blocks are free only once the step in flight has run; meanwhile it starts anew."""
    long = attrs.evolve(arrive("first", 6, 0), output=(Segment("first-out", 4),))
    actions = (long, Schedule(), Schedule(), Preempt(), Execute(), Schedule(), Execute(), Execute(), Drain())
    return Trace("preempted", attrs.evolve(hybrid(connector), steps_in_flight=2), actions)


def a_preemption_in_its_step(rule: PreemptedChunk) -> Trace:
    """What the first request runs completes a block of each group; the second needs blocks, and goes before it."""
    long = attrs.evolve(arrive("low", 0, 2), output=(Segment("low-out", 6),), priority=1)
    better = attrs.evolve(arrive("high", 0, 3), output=(Segment("high-out", 4),))
    configuration = attrs.evolve(
        hybrid(budget=20),
        pool_blocks=7,
        scheduling=Scheduling.PRIORITY,
        release=attrs.evolve(NEWEST, preempted_chunk=rule),
    )
    return Trace("preempted in its step", configuration, (long, Step(), better, Step(), Step(), Drain()))


def a_load_that_fails_with_a_step_behind_it() -> Trace:
    """The next chunk was planned on what was to be loaded: both requests go back, one while its chunk is in flight."""
    actions = (
        *FILLED,
        Evict(0, "fill", 4),
        Evict(1, "fill", 4),
        arrive("probe", 4, 4, store=2),
        Schedule(),
        arrive("sharer", 4, 2),
        Schedule(),
        Execute(failed_loads=("probe",)),
        Execute(),
        Drain(),
    )
    return Trace("fails in flight", attrs.evolve(hybrid(STORE), steps_in_flight=2), actions)


def saves(guard: Guard, *, delayed: bool) -> Trace:
    """A store saves what is computed, and a later request loads it again. A second load fails, and its saves are given
    up."""
    store = Leaf("keeper", False, Contract.ENDPOINT, store=StoreRules(delayed=delayed, guard=guard))
    lost = tuple(Evict(group, "fill", boundary) for boundary in (4, 2) for group in (0, 1))
    actions = (
        arrive("fill", 4, 0),
        Step(),
        Step(),
        EndSaves("keeper"),
        Drain(),
        *lost,
        arrive("probe", 4, 4),
        Step(failed_loads=("probe",)),
        Drain(),
        EndSaves("keeper"),
        Reset(),
    )
    return Trace("saves", hybrid(store), actions)


def a_save_that_waits_for_its_step() -> Trace:
    """It is referenced when its step is planned, and done after a later one."""
    store = Leaf("keeper", False, Contract.ENDPOINT, store=StoreRules(delayed=True))
    actions = (
        arrive("fill", 6, 0),
        Schedule(),
        Schedule(),
        Abort("fill"),
        Execute(),
        arrive("next", 4, 2),
        Schedule(),
        EndSaves("keeper"),
        Execute(),
        Execute(),
        Drain(),
        EndSaves("keeper"),
    )
    return Trace("saves in flight", attrs.evolve(hybrid(store), steps_in_flight=2), actions)


def a_load_into_a_block_that_is_still_to_be_saved(*, early: bool) -> Trace:
    """Its former owner has ended; what is to be saved is saved before the load begins, and that may end `early`."""
    keeper = Leaf("keeper", False, Contract.ENDPOINT, store=StoreRules(delayed=True, guard=Guard.FENCE))
    probe = attrs.evolve(arrive("probe", 0, 9), answers=later(8))
    rest = (Schedule(), EndLoad("probe"), Execute()) if early else (Schedule(), Execute(), EndLoad("probe"))
    actions = (arrive("fill", 4, 0), Drain(), probe, *rest, EndSaves("keeper"), Drain())
    configuration = hybrid(Composite((STORE, keeper)), budget=20)
    return Trace("flushed", attrs.evolve(configuration, pool_blocks=9, steps_in_flight=2), actions)


def a_hit_that_is_put_off() -> Trace:
    """The second request finds a state that this step writes; the lookup is dropped, and repeated in the next step."""
    actions = (arrive("first", 4, 0), arrive("second", 4, 2), Step(), Drain())
    return Trace("put off", hybrid(budget=20), actions)


def states_in_every_block() -> Trace:
    """Chunks begin and end inside blocks of 4 and pass several; later requests hit states that no chunk ends at."""
    groups = (Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.MAMBA, 4))
    configuration = attrs.evolve(hybrid(None, *groups, budget=7), state_mode=StateMode.ALL)
    actions = (arrive("first", 16, 3), Drain(), arrive("second", 13, 2), arrive("third", 6, 5), Drain())
    return Trace("every state", configuration, actions)


LONG = attrs.evolve(arrive("first", 14, 0), output=(Segment("first-out", 12),))

CHECKPOINTS = attrs.evolve(
    hybrid(None, Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.MAMBA, 8), budget=40),
    checkpoint_alignment=1,
    release=attrs.evolve(NEWEST, checkpoint_start=CheckpointStart.BLOCK_BOUNDARY),
)


def checkpoints() -> Trace:
    """One at the end of a block, and one inside a block, in the column before it. Both are saved, and hit later."""
    keeper = Leaf("keeper", False, Contract.ENDPOINT, store=StoreRules(delayed=True))
    actions = (
        *(arrive("at its end", 25, 0), Step(), EndSaves("keeper"), arrive("hits the end", 25, 1), Drain()),
        *(arrive("inside", 2, 21), Step(), EndSaves("keeper"), arrive("another", 0, 23), Drain()),
        *(attrs.evolve(arrive("hits inside", 2, 21), prompt=arrive("inside", 2, 21).prompt), Drain()),
    )
    return Trace("checkpoints", attrs.evolve(CHECKPOINTS, connector=keeper), actions)


def a_checkpoint_in_a_scratch_block() -> Trace:
    """Chunks of two blocks: one scratch block stays where the checkpoint is stored, or moves on if none is."""
    release = attrs.evolve(CHECKPOINTS.release, unreserved_checkpoint=UnreservedCheckpoint.LEFT_OUT)
    actions = (attrs.evolve(LONG, prompt=arrive("first", 40, 0).prompt), *[Step(budget=16)] * 3, Drain())
    return Trace("scratch", attrs.evolve(CHECKPOINTS, drafts=1, retention=0, release=release), actions)


def a_checkpoint_after_a_start_inside_a_block() -> Trace:
    actions = (arrive("first", 5, 0), Drain(), arrive("second", 5, 20), Step(), Drain())
    return Trace("inside", attrs.evolve(CHECKPOINTS, release=NEWEST), actions)


DRAFTS = attrs.evolve(hybrid(None, Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.MAMBA, 4), budget=4), drafts=2)


def _wrong(drafts: int) -> tuple[RejectedDrafts, ...]:
    return (RejectedDrafts("first", drafts),)


def drafts_that_are_rejected() -> Trace:
    """A prefill of two blocks moves its scratch blocks. Then none, one or both drafts of a step are wrong, in several
    places of a block; another request hits a state that was copied back."""
    steps = (Step(rejected=_wrong(wrong)) for wrong in (0, 1, 2, 1, 0, 2))
    second = attrs.evolve(arrive("second", 14, 0), prompt=(*LONG.prompt, *LONG.output))
    actions = (LONG, Step(), Step(budget=8), Step(), *steps, second, Drain())
    return Trace("drafts", DRAFTS, actions)


def drafts_of_two_steps() -> Trace:
    """The second step is planned before it is known which drafts of the first one are wrong, or that its request is
    preempted."""
    both = [action for wrong in (0, 2, 1, 2) for action in (Schedule(), Execute(rejected=_wrong(wrong)))]
    actions = (LONG, Schedule(), *both[:2], *both[2:], Preempt(), Execute(), *both, Drain())
    return Trace("drafts in flight", attrs.evolve(DRAFTS, steps_in_flight=2, budget=20), actions)


BY_HAND = (
    loads_that_outlive_their_step(),
    a_load_that_fails_in_its_step(),
    a_reader_of_a_partial_tail(),
    a_reader_of_part_of_a_block(),
    a_tail_that_waits_for_its_copy(None),
    a_tail_that_waits_for_its_copy(STORE),
    a_producer_that_runs_on(),
    an_abort_between_two_steps(),
    a_preemption_between_two_steps(None),
    a_preemption_between_two_steps(STORE),
    a_preemption_in_its_step(PreemptedChunk.WITHDRAWN),
    a_load_that_fails_with_a_step_behind_it(),
    *(saves(guard, delayed=True) for guard in (Guard.REFERENCE, Guard.FENCE, Guard.OWNED)),
    saves(Guard.REFERENCE, delayed=False),
    a_save_that_waits_for_its_step(),
    a_load_into_a_block_that_is_still_to_be_saved(early=False),
    a_load_into_a_block_that_is_still_to_be_saved(early=True),
    a_hit_that_is_put_off(),
    states_in_every_block(),
    checkpoints(),
    a_checkpoint_in_a_scratch_block(),
    drafts_that_are_rejected(),
    drafts_of_two_steps(),
)
"""Runs of a few actions, each for what it says."""


def test_every_transition_is_taken_by_some_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """And each comes from the functions of the model that are named for it, which are all that turn into one."""
    run = follow_all(BY_HAND, monkeypatch)
    counts = {action.name: run.taken[action.name] for action in ACTIONS}
    assert all(counts.values()), counts
    assert set(run.mapped) <= {(function, name) for function, names in FUNCTIONS.items() for name in names}
    assert {function for function, _ in run.mapped} == FUNCTIONS.keys()


def test_runs_of_the_model_are_runs_of_the_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    assert follow_seeds(range(3), monkeypatch, actions=6)["forward chunk"]


def test_a_chunk_that_leaves_its_block_half_way_is_no_transition(monkeypatch: pytest.MonkeyPatch) -> None:
    """From vLLM 0.30 on one that stores a checkpoint does so (docs/findings/state-of-a-chunk-start.md)."""
    trace = a_checkpoint_after_a_start_inside_a_block()
    with pytest.raises(Disagreement, match="a chunk does not leave its column half-way"):
        followed(trace, monkeypatch)
    kept = attrs.evolve(trace, configuration=attrs.evolve(trace.configuration, release=CHECKPOINTS.release))
    assert followed(kept, monkeypatch).taken["forward chunk"]


def test_a_checkpoint_without_a_block_of_its_own_is_no_transition(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM 0.31 to 0.33 stores it in the running block (docs/findings/checkpoint-in-the-running-block.md)."""
    trace = a_checkpoint_in_a_scratch_block()
    with pytest.raises(Disagreement, match="should show"):
        followed(attrs.evolve(trace, configuration=attrs.evolve(trace.configuration, release=NEWEST)), monkeypatch)


def test_runs_with_partial_tails_are_runs_of_the_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = follow_seeds(range(1, 2), monkeypatch, actions=10, features=frozenset({Feature.PARTIAL_TAILS}))
    assert taken["publish tail"]
    assert taken["copy for producer"]


@pytest.mark.slow
def test_runs_with_steps_in_flight_are_runs_of_the_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    features = frozenset({Feature.STEPS_IN_FLIGHT, Feature.FAILED_BLOCKS})
    assert follow_seeds(range(4), monkeypatch, actions=12, features=features)["end step"]


@pytest.mark.slow
def test_short_runs_with_much_in_flight_are_runs_of_the_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of tails and pending saves, with steps in flight: a few runs of what the campaigns below do at length."""
    tails = frozenset({Feature.PARTIAL_TAILS, Feature.STEPS_IN_FLIGHT})
    assert follow_seeds(range(4), monkeypatch, actions=10, features=tails)["copy for reader"]
    stores = frozenset({Feature.STORES, Feature.FAILED_BLOCKS, Feature.STEPS_IN_FLIGHT})
    cell = Cell(Contract.ENDPOINT, WorkerOrder.LOAD_BEFORE_COPY, ConfigurationClass.ONE_ATTENTION_SPEC)
    campaign = Campaign(guarded(REFERENCE), cell, Eviction.ADVERSARIAL, features=stores)
    runs = generated(campaign, Profile("followed", 8, 10, 1, 0, needs_events=False))
    assert follow_all(runs, monkeypatch).taken["save begins"]


@pytest.mark.nightly
@pytest.mark.parametrize("settings", CAMPAIGNS, ids=lambda settings: " ".join(sorted(f.value for f in settings[1])))
def test_generated_runs_with_every_feature_are_runs_of_the_encoding(
    settings: tuple[ConfigurationClass, frozenset[Feature]], monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration_class, features = settings
    cell = Cell(Contract.ENDPOINT, WorkerOrder.LOAD_BEFORE_COPY, configuration_class)
    campaign = Campaign(guarded(REFERENCE), cell, Eviction.ADVERSARIAL, features=features)
    traces = generated(campaign, Profile("followed", 40, 14, 1, 0, needs_events=False))
    assert len(traces) >= 30
    assert follow_all(traces, monkeypatch).taken["end step"]


def test_every_feature_is_in_a_campaign_or_named_as_outside() -> None:
    drawn = frozenset[Feature]().union(*(features for _, features in CAMPAIGNS))
    assert drawn | OUTSIDE.keys() == frozenset(Feature)
    assert not drawn & OUTSIDE.keys()


def generated(campaign: Campaign, profile: Profile) -> list[Trace]:
    """The runs that a fuzz campaign makes."""
    traces: list[Trace] = []

    class Kept(machine_for(campaign)):  # type: ignore[misc]
        def teardown(self) -> None:
            if self.configuration is not None:
                traces.append(Trace("generated", self.configuration, tuple(self.actions)))

    run_series(Kept, profile, 0)
    return traces


@pytest.mark.mutants
@pytest.mark.parametrize("function", ["retire", "settled", "committed", "saves_done", "load_ended"])
def test_a_change_of_the_model_that_is_no_transition_is_noticed(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the recorder does not turn into a transition makes the two sides differ."""
    monkeypatch.setattr(Recorder, function, lambda *_: None)
    with pytest.raises((Disagreement, IndexError)):
        follow_all(BY_HAND, monkeypatch)


@pytest.mark.mutants
def test_an_action_that_is_no_transition_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An eviction of which the encoding is not told."""
    monkeypatch.setattr(soundness_agreement, "Evict", Abort)
    with pytest.raises(Disagreement, match="is no transition of the encoding"):
        followed(a_load_that_fails_in_its_step(), monkeypatch)


@pytest.mark.mutants
def test_hashes_that_the_model_keeps_of_a_preempted_chunk_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What vLLM does, 0.23 to 0.33: the encoding withdraws them."""
    with pytest.raises(Disagreement, match="hash of block 4"):
        followed(a_preemption_in_its_step(PreemptedChunk.KEPT), monkeypatch)


@pytest.mark.mutants
def test_a_run_that_the_encoding_forbids_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that the model does not keep: no step may be executed while a save is pending."""
    end_step = soundness_agreement.end_step

    def stricter(state: State, executed: Any) -> Any:
        transition = end_step(state, executed)
        idle = Universal("no save is pending", (BLOCK,), lambda block: state.saves(block) == 0)
        return attrs.evolve(transition, guards=(*transition.guards, idle))

    monkeypatch.setattr(soundness_agreement, "end_step", stricter)
    with pytest.raises(Disagreement, match="no save is pending"):
        followed(a_save_that_waits_for_its_step(), monkeypatch)


@pytest.mark.mutants
def test_an_encoding_with_one_state_per_chunk_disagrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the model writes the state of every block."""
    words = Universe.words
    one_state = {"every_state": lambda group: False}
    monkeypatch.setattr(Universe, "words", lambda universe: attrs.evolve(words(universe), **one_state))
    with pytest.raises(Disagreement, match="columns that a chunk skips are null"):
        followed(states_in_every_block(), monkeypatch)


@pytest.mark.mutants
@pytest.mark.parametrize("trace", [drafts_that_are_rejected(), drafts_of_two_steps()], ids=["one step", "two steps"])
def test_an_encoding_in_which_all_drafts_are_right_disagrees(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soundness_agreement, "verified", lambda chunk, *_: chunk)
    with pytest.raises(Disagreement):
        followed(trace, monkeypatch)


@pytest.mark.mutants
def test_an_encoding_that_forgets_an_effect_disagrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """`allocate` without the reference that the pool counts."""
    allocate = BY_NAME["allocate"]

    def forgets(state: State, *arguments: Any) -> Any:
        transition = allocate.build(state, *arguments)
        return attrs.evolve(transition, after=attrs.evolve(transition.after, refs=state.refs))

    changed = attrs.evolve(allocate, build=forgets)
    monkeypatch.setitem(soundness_follower.BY_NAME, "allocate", changed)
    with pytest.raises(Disagreement, match="references"):
        follow_seeds(range(1), monkeypatch, actions=6)


@pytest.mark.mutants
def test_an_encoding_that_releases_a_copy_before_it_has_run_disagrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a connector vLLM does not; without one it does."""
    monkeypatch.setattr(soundness_agreement, "commit_step", lambda state, _: commit_step(state, copies_wait=False))
    followed(a_tail_that_waits_for_its_copy(None), monkeypatch)
    with pytest.raises(Disagreement, match="references"):
        followed(a_tail_that_waits_for_its_copy(STORE), monkeypatch)


@pytest.mark.mutants
@pytest.mark.parametrize("early", [False, True])
def test_an_encoding_that_forgets_what_is_still_to_be_saved_disagrees(
    early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`await load` that counts a block as overwritten before its load has begun."""
    await_load = BY_NAME["await load"]

    def forgets(state: State, entry: Any) -> Any:
        transition = await_load.build(state, entry)
        after = attrs.evolve(transition.after, now=content_at(state.now, state.table(entry), lambda _: False))
        return attrs.evolve(transition, after=after)

    run = a_load_into_a_block_that_is_still_to_be_saved(early=early)
    followed(run, monkeypatch)
    monkeypatch.setitem(soundness_follower.BY_NAME, "await load", attrs.evolve(await_load, build=forgets))
    with pytest.raises(Disagreement, match="which it need not hold"):
        followed(run, monkeypatch)


@pytest.mark.mutants
def test_an_encoding_that_claims_more_content_than_there_is_disagrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """`publish full` that also claims what the next token would add."""
    publish = BY_NAME["publish full"]

    def claims(state: State, entry: Any, block: Any) -> Any:
        transition = publish.build(state, entry, block)
        key = state.words.key_of(entry, state.words.column_end(entry) + 1)
        after = attrs.evolve(transition.after, last=lambda b, k: (b == block and k == key) or state.last(b, k))
        return attrs.evolve(transition, after=after)

    monkeypatch.setitem(soundness_follower.BY_NAME, "publish full", attrs.evolve(publish, build=claims))
    with pytest.raises(Disagreement, match="should show"):
        follow_seeds(range(3), monkeypatch, actions=6)


def _take(pool: Pool, block: int) -> Pool:
    others = tuple(other for other in pool.free if other != block)
    return attrs.evolve(pool, free=(block, *others)).take(1)[0]


def _move(pool: Pool, source: int, target: int) -> Pool:
    return _take(pool, target).move_labels(source, target).touch((source,))


ON_POOLS: dict[str, Callable[..., Pool]] = {
    "touch": lambda pool, label, block: pool.touch((block,)),
    "allocate": lambda pool, label, block: _take(pool, block),
    "evict": lambda pool, label, block: pool.unpublish((block,)),
    "publish full": lambda pool, label, block: pool.publish(block, label),
    "retire": lambda pool, label, block: pool.release((block,)),
    "copy for producer": lambda pool, label, source, target: _move(pool, source, target),
    "save begins": lambda pool, label, block: pool.touch((block,)),
    "save ends": lambda pool, label, block: pool.release((block,)),
    "reset": lambda pool, label: pool.unpublish(range(len(pool.refs))),
}
"""What the pool of the model does for an action with these blocks; `label` is the key of the action's column."""


class _AsPools:
    """Blocks and keys of an example of the solver, and what its states are as pools of the model."""

    def __init__(self, model: z3.ModelRef, terms: tuple[Any, ...]) -> None:
        self._model = model
        self._terms = terms
        self._blocks: dict[str, int] = {}
        for term in terms:
            self._blocks.setdefault(self._value(term), len(self._blocks))
        self._nothing = self._value(BEFORE.words.no_key)

    def _value(self, term: Any) -> str:
        return str(self._model.eval(term, model_completion=True))

    def block(self, term: Any) -> int:
        return self._blocks[self._value(term)]

    def label(self, key: Any) -> Label | None:
        value = self._value(key)
        return Label(0, (value,)) if value != self._nothing else None

    def pool(self, state: State) -> Pool:
        """References, hashes, and the tails of blocks that have both as aliases."""
        refs, held = [0] * len(self._blocks), [()] * len(self._blocks)
        for term in self._terms:
            number = self.block(term)
            labels = (self.label(state.full_hash(term)), self.label(state.tail_hash(term)))
            if number:
                refs[number] = self._model.eval(state.refs(term), model_completion=True).as_long()
                held[number] = tuple(label for label in labels if label is not None)
        cached: dict[Label, tuple[int, ...]] = {}
        for number, labels in enumerate(held):
            for label in labels:
                cached[label] = (*cached.get(label, ()), number)
        return Pool(
            refs=tuple(refs),
            labels=tuple(next(iter(labels), None) for labels in held),
            free=tuple(number for number, count in enumerate(refs) if count == 0 and number),
            cached=cached,
            aliases={number: labels[1:] for number, labels in enumerate(held) if labels[1:]},
        )


@pytest.mark.parametrize("name", ON_POOLS)
def test_examples_of_the_solver_are_pools_of_the_model(name: str) -> None:
    """The encoded effect on references and hashes is what the pool does, for states that z3 makes up."""
    (action,) = (action for action in ACTIONS if action.name == name)
    built = row(action)
    examples = _examples(built, 12)
    assert len(examples) >= 4
    for model in examples:
        as_pools = _AsPools(model, (BEFORE.words.null, *built.terms.of(BLOCK)))
        arguments = zip(action.arguments, built.arguments, strict=True)
        blocks = [as_pools.block(argument) for kind, argument in arguments if kind is BLOCK]
        label = None
        if name == "publish full":
            entry = built.arguments[0]
            label = as_pools.label(BEFORE.words.key_of(entry, BEFORE.words.column_end(entry)))
        done = ON_POOLS[name](as_pools.pool(BEFORE), label, *blocks)
        expected = as_pools.pool(built.transition.after)
        assert (done.refs, done.labels, done.aliases) == (expected.refs, expected.labels, expected.aliases)


def _examples(built: Row, count: int) -> list[z3.ModelRef]:
    """States in which the action can happen; some other block has more or fewer references, and a hash or none."""
    solver = z3.SimpleSolver()
    solver.add(*(assumption.formula for assumption in built.assumptions), built.changes)
    models: list[z3.ModelRef] = []
    other = built.terms.of(BLOCK)[-1]
    for number in range(count):
        solver.push()
        solver.add(
            BEFORE.refs(other) == number % 3, (BEFORE.full_hash(other) == BEFORE.words.no_key) == (number % 2 == 0)
        )
        if solver.check() == z3.sat:
            models.append(solver.model())
        solver.pop()
    return models


def test_a_changed_effect_on_references_is_noticed() -> None:
    """The comparison above can fail."""
    (action,) = (action for action in ACTIONS if action.name == "touch")
    built = row(action)
    model = _examples(built, 4)[0]
    block = built.arguments[-1]
    twice = attrs.evolve(built.transition.after, refs=at(BEFORE.refs, block, BEFORE.refs(block) + 2))
    added = model.eval(twice.refs(block) - built.transition.after.refs(block), model_completion=True)
    assert added.as_long() == 1
