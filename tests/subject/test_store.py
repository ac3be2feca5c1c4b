"""The lookup of stores against vLLM's own (`MooncakeStoreCoordinator.find_longest_cache_hit`), on random objects."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from model.configuration import Configuration, Group, GroupKind
from model.pool import Label
from model.store import Store, found
from model.store_rules import StoreRules
from model.tokens import Segment, tokens_of
from subjects.process import SubjectProcess, subject_from_environment

LOOKUPS = 300
"""Per combination of groups."""

pytestmark = pytest.mark.subject

FULL, MAMBA, WINDOW = GroupKind.FULL_ATTENTION, GroupKind.MAMBA, GroupKind.SLIDING_WINDOW
GROUPS = {
    "one Mamba group": (Group(FULL, 2), Group(MAMBA, 2)),
    "three Mamba groups": (Group(FULL, 2), *(Group(MAMBA, 2),) * 3),
    "wide attention": (Group(FULL, 4), Group(MAMBA, 2)),
    "a window": (Group(FULL, 2), Group(WINDOW, 2, 5), Group(MAMBA, 2)),
    "a wide window": (Group(FULL, 2), Group(WINDOW, 4, 7)),
}


@pytest.fixture(scope="module")
def subject() -> Iterator[SubjectProcess]:
    subject = subject_from_environment()
    if subject is None:
        pytest.skip("no subject")
    with SubjectProcess(subject) as process:
        yield process


def ends(group: Group, N: int) -> range:
    """Boundaries for which a group may have an object."""
    return range(group.block, N + 1, group.block)


@pytest.mark.parametrize("name", GROUPS)
def test_a_store_finds_what_vllm_finds(subject: SubjectProcess, name: str) -> None:
    groups, draws = GROUPS[name], random.Random(name)
    configuration = Configuration(groups, pool_blocks=9, budget=9)
    lookups = []
    for _ in range(LOOKUPS):
        N, share = draws.randint(1, 24), draws.choice((0.5, 0.8, 0.95))
        every = [(index, end) for index, group in enumerate(groups) for end in ends(group, N)]
        lookups.append((N, [key for key in every if draws.random() < share]))
    described = [{"kind": group.kind.value, "block": group.block, "window": group.window} for group in groups]
    reply = subject.ask("store_hits", groups=described, hash_block=2, lookups=lookups)
    assert isinstance(reply, dict), reply
    ours = []
    for N, keys in lookups:
        prefix = tokens_of((Segment("x", N),))
        store = Store(frozenset(Label(index, prefix[:end]) for index, end in keys))
        ours.append(found(configuration, StoreRules(), store, prefix, 0))
    different = [
        (lookup, our, their) for lookup, our, their in zip(lookups, ours, reply["found"], strict=True) if our != their
    ]
    assert different == []
    assert len(set(ours)) > 3
