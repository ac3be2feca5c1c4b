"""The encoded transitions of the cache proof and the model agree, both ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import z3

from model.actions import Abort, Drain, EndLoad, Evict, LeafAnswers, Reset, ScriptedAnswer, Step
from model.configuration import Eviction, Group, GroupKind
from model.policies import POLICIES
from model.pool import Label, Pool
from model.release import NEWEST
from model.trace import Trace
from properties.features import Feature
from solver.soundness.cells import ACTIONS, BEFORE, Row, row
from solver.soundness.state import State, at
from solver.soundness.terms import BLOCK
from subjects.generation import random_trace
from tests import soundness_follower
from tests.small_runs import FILLED, STORE, arrive, hybrid
from tests.soundness_agreement import follow
from tests.soundness_follower import BY_NAME, Disagreement

REFERENCE = POLICIES["reference"]

NO_COUNTERPART = {
    "drop lookup": "the model looks up and adopts in one go",
    "relocate": "no scratch blocks",
    "save begins": "saves are followed once the recorder knows them",
    "save ends": "saves are followed once the recorder knows them",
    "preempt in step": "first come first served preempts only requests that are not in the step yet",
}
"""Transitions that no run below takes, and why."""


def follow_seeds(seeds: range, patch: pytest.MonkeyPatch, actions: int, *, partial_tails: bool = False) -> Counter[str]:
    """The transitions of runs with one attention spec, and with a second one of either kind."""
    taken: Counter[str] = Counter()
    for seed in seeds:
        second = (None, GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW)[seed % 3]
        eviction = (Eviction.ADVERSARIAL, Eviction.LRU)[seed % 2]
        trace = random_trace(
            seed,
            REFERENCE,
            second_attention=second,
            eviction=eviction,
            actions=actions,
            features=frozenset({Feature.PARTIAL_TAILS}) if partial_tails else frozenset(),
            release=NEWEST,
        )
        with patch.context() as patched:
            taken.update(follow(trace, REFERENCE, patched, invariants=True).taken)
    return taken


def test_runs_of_the_model_are_runs_of_the_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    assert follow_seeds(range(3), monkeypatch, actions=6)["forward chunk"]


def test_runs_with_partial_tails_are_runs_of_the_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = follow_seeds(range(1, 2), monkeypatch, actions=10, partial_tails=True)
    assert taken["publish tail"]
    assert taken["copy for producer"]


def test_a_load_that_fails_in_its_step_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    actions = (
        *FILLED,
        Evict(0, "fill", 4),
        Evict(1, "fill", 4),
        arrive("probe", 4, 2, store=2),
        Step(failed_loads=("probe",)),
        Drain(),
    )
    taken = follow(Trace("fails", hybrid(STORE), actions), REFERENCE, monkeypatch, invariants=True).taken
    assert "lose step" in taken


def test_a_reader_of_a_partial_tail_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = (Group(GroupKind.FULL_ATTENTION, 2), Group(GroupKind.MAMBA, 4))
    actions = (arrive("first", 7, 0), Drain(), arrive("second", 7, 3), Drain())
    trace = Trace("tail", hybrid(None, *groups, budget=20), actions)
    taken = follow(trace, REFERENCE, monkeypatch, invariants=True).taken
    assert {"publish tail", "copy for reader"} <= set(taken)


def test_loads_that_outlive_their_step_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One commits, one fails, one is aborted before it ends; then the cache is reset."""
    later = (LeafAnswers("store", (ScriptedAnswer(2, asynchronous=True), ScriptedAnswer(0))),)
    probes = [attrs.evolve(arrive(name, 4, 2), answers=later) for name in ("commits", "fails", "aborted")]
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
    trace = Trace("loads", hybrid(STORE, budget=20), actions)
    taken = follow(trace, REFERENCE, monkeypatch, invariants=True).taken
    expected = {"start loading", "load begins", "load commits", "load fails", "abort loading", "start after load"}
    assert expected | {"reset"} <= set(taken)


@pytest.mark.slow
def test_every_transition_with_a_counterpart_is_taken_by_some_run(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = follow_seeds(range(6), monkeypatch, actions=12)
    taken += follow_seeds(range(4), monkeypatch, actions=10, partial_tails=True)
    elsewhere = {
        "copy for reader",
        "lose step",
        "load fails",
        "abort loading",
        "start after load",
        "load commits",
        "reset",
    }
    assert set(taken) >= {action.name for action in ACTIONS} - set(NO_COUNTERPART) - elsewhere


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


def _take(pool: Pool, block: int, label: Label) -> Pool:
    others = tuple(other for other in pool.free if other != block)
    return attrs.evolve(pool, free=(block, *others)).take(1)[0]


ON_POOLS: dict[str, Callable[[Pool, int, Label], Pool]] = {
    "touch": lambda pool, block, label: pool.touch((block,)),
    "allocate": _take,
    "evict": lambda pool, block, label: pool.unpublish((block,)),
    "publish full": lambda pool, block, label: pool.publish(block, label),
    "retire": lambda pool, block, label: pool.release((block,)),
}
"""What the pool of the model does for an action; `label` is the key of the action's column."""


def _pool_of(
    model: z3.ModelRef, state: State, blocks: dict[str, int], labels: dict[str, Label | None], terms: Any
) -> Pool:
    """The pool of an example: references and hashes of its blocks."""
    refs, held = [0] * (len(blocks)), [None] * len(blocks)
    for term in terms:
        number = blocks[str(model.eval(term, model_completion=True))]
        refs[number] = model.eval(state.refs(term), model_completion=True).as_long()
        held[number] = labels[str(model.eval(state.full_hash(term), model_completion=True))]
    refs[0], held[0] = 0, None
    cached: dict[Label, tuple[int, ...]] = {}
    for number, label in enumerate(held):
        if label is not None:
            cached[label] = (*cached.get(label, ()), number)
    free = tuple(number for number, count in enumerate(refs) if count == 0 and number)
    return Pool(tuple(refs), tuple(held), free, cached)


@pytest.mark.parametrize("name", ON_POOLS)
def test_examples_of_the_solver_are_pools_of_the_model(name: str) -> None:
    """The encoded effect on references and hashes is what the pool does, for states that z3 makes up."""
    (action,) = (action for action in ACTIONS if action.name == name)
    built = row(action)
    examples = _examples(built, 12)
    assert len(examples) >= 4
    for model in examples:
        terms = [BEFORE.words.null, *built.terms.of(BLOCK)]
        blocks: dict[str, int] = {}
        for term in terms:
            blocks.setdefault(str(model.eval(term, model_completion=True)), len(blocks))
        after = built.transition.after
        labels: dict[str, Label | None] = {str(model.eval(BEFORE.words.no_key, model_completion=True)): None}
        for state in (BEFORE, after):
            for term in terms:
                key = str(model.eval(state.full_hash(term), model_completion=True))
                labels.setdefault(key, Label(0, (key,)))
        entry = built.arguments[0]
        block = blocks[str(model.eval(built.arguments[-1], model_completion=True))]
        label = Label(0, ("none",))
        if name == "publish full":
            key = str(model.eval(BEFORE.words.key_of(entry, BEFORE.words.column_end(entry)), model_completion=True))
            label = labels[key] or label
        before = _pool_of(model, BEFORE, blocks, labels, terms)
        done = ON_POOLS[name](before, block, label)
        expected = _pool_of(model, after, blocks, labels, terms)
        assert (done.refs, done.labels) == (expected.refs, expected.labels)


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
