"""The lookups of stores against vLLM's own, on random objects: `MooncakeStoreCoordinator.find_longest_cache_hit` and
`OffloadingConnectorScheduler._lookup_complete_chunks`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from model.configuration import Configuration, Group, GroupKind
from model.pool import Label
from model.store import Store, answer, object_span
from model.store_rules import Match, StoreRules
from model.tokens import Segment, tokens_of
from subjects import process
from subjects.observed import build_arguments
from subjects.process import SubjectProcess
from tests.installed import REQUIRED, installed_subject

LOOKUPS = 300
"""Per combination of groups."""

pytestmark = pytest.mark.subject

FULL, MAMBA, WINDOW = GroupKind.FULL_ATTENTION, GroupKind.MAMBA, GroupKind.SLIDING_WINDOW
ALIKE = {
    "one Mamba group": (Group(FULL, 2), Group(MAMBA, 2)),
    "three Mamba groups": (Group(FULL, 2), *(Group(MAMBA, 2),) * 3),
    "a window": (Group(FULL, 2), Group(WINDOW, 2, 5), Group(MAMBA, 2)),
}
"""Groups with the same block."""
MOONCAKE = ALIKE | {
    "wide attention": (Group(FULL, 4), Group(MAMBA, 2)),
    "a wide window": (Group(FULL, 2), Group(WINDOW, 4, 7)),
}
AROUND = {
    "one Mamba group": (Group(FULL, 2), Group(MAMBA, 2)),
    "wide attention": (Group(FULL, 4), Group(MAMBA, 2)),
    "wide Mamba": (Group(FULL, 2), Group(MAMBA, 4)),
    "two wide Mamba groups": (Group(FULL, 2), *(Group(MAMBA, 6),) * 2),
}

WIDTHS = (1, 2, 3)
"""Blocks of an object."""

Lookup = tuple[int, int, list[tuple[int, int]]]
"""N, L, and group and boundary of each object."""


@pytest.fixture(scope="module")
def subject() -> Iterator[SubjectProcess]:
    driver = Path(process.__file__).with_name("store_driver.py")
    with SubjectProcess(installed_subject(REQUIRED[-1]), driver=driver) as running:
        yield running


def random_lookups(name: str, configuration: Configuration, rules: StoreRules, *, local: bool) -> list[Lookup]:
    draws, lookups = random.Random(name), []
    for _ in range(LOOKUPS):
        N, share = draws.randint(1, 26 * rules.object_blocks), draws.choice((0.5, 0.8, 0.95))
        every = [
            (index, end)
            for index, group in enumerate(configuration.groups)
            for span in (object_span(rules, group),)
            for end in range(span, N + 1, span)
        ]
        L = draws.randrange(0, N, configuration.scheduler_block) if local else 0
        lookups.append((N, L, [key for key in every if draws.random() < share]))
    return lookups


def compared(
    subject: SubjectProcess, command: str, name: str, groups: tuple[Group, ...], rules: StoreRules, *, local: bool
) -> None:
    configuration = Configuration(groups, pool_blocks=9, budget=9, hash_block=2)
    lookups = random_lookups(name, configuration, rules, local=local)
    wide = {"object_blocks": rules.object_blocks} if rules.object_blocks > 1 else {}
    groups_there = build_arguments(configuration)["groups"]
    reply = subject.ask(command, groups=groups_there, hash_block=2, lookups=lookups, **wide)
    assert isinstance(reply, dict), reply
    ours = []
    for N, L, keys in lookups:
        prefix = tokens_of((Segment("x", N),))
        store = Store(frozenset(Label(index, prefix[:end]) for index, end in keys))
        ours.append(answer(configuration, rules, store, prefix, L))
    different = [each for each in zip(lookups, ours, reply["found"], strict=True) if each[1] != each[2]]
    assert different == []
    assert len(set(ours)) > 3


@pytest.mark.parametrize("name", MOONCAKE)
def test_a_store_finds_what_mooncake_finds(subject: SubjectProcess, name: str) -> None:
    compared(subject, "mooncake", name, MOONCAKE[name], StoreRules(), local=False)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ALIKE)
def test_a_store_finds_what_offloading_finds_where_blocks_are_alike(
    subject: SubjectProcess, name: str, width: int
) -> None:
    compared(subject, "offloading", name, ALIKE[name], StoreRules(object_blocks=width), local=True)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", AROUND)
def test_offloading_takes_the_block_around_a_boundary(subject: SubjectProcess, name: str, width: int) -> None:
    rules = StoreRules(match=Match.BLOCK_AROUND, object_blocks=width)
    compared(subject, "offloading", name, AROUND[name], rules, local=True)
