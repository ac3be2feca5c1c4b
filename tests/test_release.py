"""Releases and their rules: each version has those of the newest set that appeared no later."""

from __future__ import annotations

import itertools

import pytest

from model.release import NEWEST, RELEASES, rules_of
from model.rules.states import ChunkGuard


@pytest.mark.parametrize(
    ("version", "same_as"), [("0.23.0", "0.23"), ("0.25.1", "0.24"), ("0.28.0", "0.28"), ("0.31.0", "0.31")]
)
def test_a_version_follows_the_newest_set_that_appeared_no_later(version: str, same_as: str) -> None:
    assert rules_of(version) == RELEASES[same_as]


def test_versions_beyond_the_table() -> None:
    assert rules_of("0.34.1+local") == NEWEST == rules_of("0.33.0")
    assert rules_of("0.20.0") == RELEASES["0.23"]


def test_each_set_of_rules_differs_from_the_next() -> None:
    sets = list(RELEASES.values())
    assert all(older != newer for older, newer in itertools.pairwise(sets))
    assert rules_of("0.26.0").chunk_guard is ChunkGuard.UP_TO_LAST_CACHEABLE
