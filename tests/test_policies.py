"""The shipped policies: one for every release, with the rules of that release."""

from __future__ import annotations

import pytest

from hitbound.corpus import corpus
from hitbound.corpus_check import expectation_of
from hitbound.policy_loading import load_policy
from model.policies import DEFAULT_POLICY, DISTINCT, POLICIES
from model.policies.vllm import ERAS
from model.release import RELEASES, rules_of
from model.rules.scheduling import Adoption
from properties.requirements import release_of
from solver.decide import Decider, Outcome
from solver.equivalence import decide_equivalence

RELEASED = tuple(f"0.{minor}" for minor in range(23, 34))


def test_every_release_has_a_policy() -> None:
    assert tuple(ERAS) == RELEASED
    assert {f"vllm-{release}" for release in RELEASED} | {"reference"} == set(POLICIES)
    assert load_policy("latest") is POLICIES[DEFAULT_POLICY] is POLICIES[f"vllm-{RELEASED[-1]}"]


@pytest.mark.parametrize(("release", "first"), [("0.26", "vllm-0.24"), ("0.33", "vllm-0.28")])
def test_releases_that_decide_alike_say_so(release: str, first: str) -> None:
    policy = POLICIES[f"vllm-{release}"]
    assert getattr(policy, "decides_as", "") == first
    assert decide_equivalence(policy, DISTINCT[first], Decider()).outcome is Outcome.HOLDS


def test_a_release_brings_its_rules() -> None:
    assert release_of(POLICIES["vllm-0.23"]).adoption is Adoption.GROUP_BY_GROUP
    assert release_of(POLICIES["vllm-0.24"]).adoption is Adoption.ALL_HITS_FIRST
    assert release_of(POLICIES[DEFAULT_POLICY]) == RELEASES[max(RELEASES)]
    assert rules_of("0.25") == RELEASES["0.24"]


def test_what_the_corpus_states_of_a_release_holds_for_those_that_decide_alike() -> None:
    for trace in corpus():
        stated = expectation_of(trace, POLICIES["vllm-0.28"])
        assert stated is not None
        assert expectation_of(trace, POLICIES["vllm-0.33"]) == stated
