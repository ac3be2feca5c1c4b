"""Features that a campaign may draw: they are drawn only where they are asked for, and hold for the repaired policy."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model.configuration import Eviction, Group, GroupKind
from model.policies import POLICIES
from model.release import Release
from model.rules.scheduling import Reservation
from properties.features import Feature
from properties.fuzz import PROFILES, fuzz, seek
from properties.machine import Campaign
from properties.policy_guard import guarded
from properties.replay import replay
from properties.strategies import configurations
from properties.verdict import REQUIRED_CELL, Verdict
from solver.scope import Scope, ScopeError
from tests.small_runs import ATTENTION, arrive, found, hybrid

TAILS = frozenset({Feature.PARTIAL_TAILS})


@settings(max_examples=60, suppress_health_check=list(HealthCheck), database=None)
@given(st.data())
def test_a_hash_unit_below_the_mamba_block_is_drawn_only_where_it_is_asked_for(data: st.DataObject) -> None:
    plain = data.draw(configurations(REQUIRED_CELL, Eviction.LRU))
    assert plain.mamba_block in (None, plain.hash_block)
    drawn = data.draw(configurations(REQUIRED_CELL, Eviction.LRU, features=TAILS))
    assert drawn.mamba_block in (None, *(width * drawn.hash_block for width in (1, 2, 4)))


def test_the_repaired_policy_holds_with_partial_tails() -> None:
    results = fuzz(POLICIES["reference"], attrs.evolve(PROFILES["quick"], runs=25), features=TAILS)
    assert not [result for result in results if result.verdict is Verdict.VIOLATED]


def test_a_search_refuses_what_it_does_not_know() -> None:
    wide = hybrid(None, ATTENTION, Group(GroupKind.MAMBA, 4))
    with pytest.raises(ScopeError, match="partial tails"):
        Scope("wide", wide, (arrive("p", 5, 0),))


def test_a_search_refuses_estimates() -> None:
    estimating = attrs.evolve(hybrid(), release=Release(reservation=Reservation.ESTIMATED))
    with pytest.raises(ScopeError, match="estimates"):
        Scope("estimating", estimating, (arrive("p", 5, 0),))


@pytest.mark.slow
def test_fuzz_finds_the_short_estimate_unaided() -> None:
    release = Release(reservation=Reservation.ESTIMATED)
    campaign = Campaign(guarded(POLICIES["vllm-0.28"]), REQUIRED_CELL, Eviction.LRU, release=release)
    profile = attrs.evolve(PROFILES["quick"], runs=100, series=3, actions=18)
    trace = seek(campaign, ("OWN-RESERVE", None), profile, seed=0)
    assert trace is not None
    assert found(replay(trace, POLICIES["vllm-0.28"]), "OWN-RESERVE")
