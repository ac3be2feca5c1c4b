"""Random small scopes: the short cuts of the search agree with the model, and symmetry changes no result."""

from __future__ import annotations

import random

import pytest

from model.actions import Arrive, LeafAnswers, ScriptedAnswer
from model.configuration import Configuration, Eviction, Group, GroupKind, WorkerOrder
from model.connector import Composite, Connector, Contract, Leaf, leaves_of
from model.errors import HitboundError
from model.policies import DISTINCT
from model.tokens import Segment
from solver.explore import explore
from solver.scope import Disturbance, Scope
from solver.search import FULL, NONE, Limits, Symmetry
from tests.test_explore import agree, verdicts, violated


def random_scope(seed: int) -> Scope:
    """A scope of one to four groups, a tree of up to two leaves, and two or three requests; the same for a seed."""
    choose = random.Random(seed)
    while True:
        try:
            return _drawn(choose, f"random {seed}")
        except HitboundError:
            continue


def _drawn(choose: random.Random, name: str) -> Scope:
    unit = choose.choice([1, 2])
    groups = [Group(GroupKind.FULL_ATTENTION, unit * choose.choice([1, 2]))]
    if choose.random() < 0.3:
        groups.append(Group(GroupKind.FULL_ATTENTION, unit * choose.choice([1, 2])))
    if choose.random() < 0.3:
        groups.append(Group(GroupKind.SLIDING_WINDOW, unit * choose.choice([1, 2]), choose.randint(1, 3 * unit)))
    groups += [Group(GroupKind.MAMBA, unit)] * choose.choice([1, 1, 2, 0])
    first, second = (Leaf(leaf, choose.random() < 0.5, Contract.ENDPOINT) for leaf in ("first", "second"))
    trees: list[Connector | None] = [None, first, Composite((first, second)), Composite((first, Composite((second,))))]
    connector = choose.choice(trees)
    leaves = () if connector is None else tuple(leaf.name for leaf in leaves_of(connector))
    configuration = Configuration(
        tuple(groups),
        pool_blocks=choose.randint(6, 11),
        budget=choose.choice([unit, 2 * unit, 2 * unit + 1, 6]),
        connector=connector,
        eviction=choose.choice(list(Eviction)),
        worker_order=choose.choice(list(WorkerOrder)),
        hash_block=unit,
    )
    arrivals = tuple(_request(choose, request, unit, leaves) for request in "abc"[: choose.choice([2, 2, 3])])
    return Scope(name, configuration, arrivals, frozenset(d for d in Disturbance if choose.random() < 0.5))


def _request(choose: random.Random, name: str, unit: int, leaves: tuple[str, ...]) -> Arrive:
    shared = choose.randint(0, 2 * unit + 1)
    prompt = (Segment("x", shared), Segment(name, choose.randint(0 if shared else 1, 2)))
    said = []
    for leaf in leaves:
        answer = ScriptedAnswer(choose.choice([0, 1, unit, 2 * unit]), choose.random() < 0.4)
        said.append(LeafAnswers(leaf, (ScriptedAnswer(None), answer) if choose.random() < 0.3 else (answer,)))
    return Arrive(name, prompt, (Segment(f"{name}-out", choose.randint(1, 2)),), tuple(said))


@pytest.mark.parametrize("seed", range(40))
def test_remembered_successors_are_those_of_the_model(seed: int) -> None:
    policies = list(DISTINCT.values())
    agree(random_scope(seed), policies[seed % len(policies)], 120)


@pytest.mark.parametrize("seed", range(100, 130))
def test_symmetry_changes_no_result(seed: int) -> None:
    policies = list(DISTINCT.values())
    policy, scope = policies[seed % len(policies)], random_scope(seed)
    limits = Limits(states=1_500)
    results = {
        symmetry: explore(policy, scope, symmetry=symmetry, limits=limits)
        for symmetry in (FULL, Symmetry(blocks=True, requests=False), NONE)
    }
    complete = [found for found in results.values() if found[0].detail["complete"]]
    for found in complete:
        assert verdicts(found) == verdicts(complete[0])
        assert violated(found) == violated(complete[0])
