"""The model against a real vLLM, decision by decision."""

from __future__ import annotations

import pytest

from model.configuration import Eviction, GroupKind
from model.policies.vllm import Vllm028
from model.policy import Policy, Summary
from properties.features import Feature
from subjects.conform import policy_of, rules_on_a_subject
from subjects.differential import Comparison, Ending, Run
from subjects.generation import random_trace
from subjects.process import SubjectProcess
from tests.installed import REQUIRED

TRACES = 30
"""Per configuration class and eviction mode."""

pytestmark = pytest.mark.subject

on_required_releases = pytest.mark.parametrize("process", REQUIRED, indirect=True)
on_the_newest = pytest.mark.parametrize("process", REQUIRED[-1:], indirect=True)
with_and_without_a_window = pytest.mark.parametrize("second_attention", [None, GroupKind.SLIDING_WINDOW])


def compared(
    seed: int,
    policy: Policy,
    process: SubjectProcess,
    second_attention: GroupKind | None,
    eviction: Eviction,
    features: frozenset[Feature] = frozenset(),
) -> tuple[Comparison, set[str]]:
    trace = random_trace(
        seed,
        policy,
        second_attention=second_attention,
        eviction=eviction,
        features=features,
        release=rules_on_a_subject(process.release),
    )
    run = Run(trace.configuration, policy, process)
    return run.run(trace.actions), run.events


def what_is_met(
    process: SubjectProcess,
    second_attention: GroupKind | None,
    eviction: Eviction,
    features: frozenset[Feature] = frozenset(),
) -> set[str]:
    """The events of all traces, in which nothing differs."""
    met: set[str] = set()
    for seed in range(TRACES):
        comparison, events = compared(seed, policy_of(process.release), process, second_attention, eviction, features)
        assert comparison.difference is None, f"seed {seed}: {comparison.difference}"
        assert comparison.ending is Ending.EQUAL
        met |= events
    return met


@on_required_releases
@pytest.mark.parametrize("eviction", list(Eviction))
@with_and_without_a_window
def test_no_decision_differs(process: SubjectProcess, second_attention: GroupKind | None, eviction: Eviction) -> None:
    assert {
        "local hit",
        "synchronous load",
        "asynchronous load",
        "divergent admission",
        "preemption",
    } <= what_is_met(process, second_attention, eviction)


@on_the_newest
@with_and_without_a_window
def test_no_decision_differs_with_draft_models_retention_and_chunks(
    process: SubjectProcess, second_attention: GroupKind | None
) -> None:
    features = frozenset({Feature.DRAFT_MODEL, Feature.SPARSE_RETENTION, Feature.CHUNKED_LOCAL})
    what_is_met(process, second_attention, Eviction.ADVERSARIAL, features)


@on_the_newest
@pytest.mark.parametrize("eviction", list(Eviction))
@with_and_without_a_window
def test_no_decision_differs_with_partial_tails(
    process: SubjectProcess, second_attention: GroupKind | None, eviction: Eviction
) -> None:
    met = what_is_met(process, second_attention, eviction, frozenset({Feature.PARTIAL_TAILS}))
    assert {"partial tail copied", "partial tail moved", "partial tail dropped", "alias", "synchronous load"} <= met


@on_the_newest
@pytest.mark.parametrize("eviction", list(Eviction))
@pytest.mark.parametrize("second_attention", [None, GroupKind.FULL_ATTENTION])
def test_no_decision_differs_with_context_parallelism(
    process: SubjectProcess, second_attention: GroupKind | None, eviction: Eviction
) -> None:
    met = what_is_met(process, second_attention, eviction, frozenset({Feature.CONTEXT_PARALLEL}))
    assert {"local hit", "unaligned R", "synchronous load", "asynchronous load"} <= met


class Deepest(Vllm028):
    """A wrong policy: the deepest hit of any group."""

    def local(self, summary: Summary) -> tuple[int, bool]:
        return summary.deepest, summary.shallowest < summary.deepest


@on_the_newest
def test_another_policy_is_told_apart(process: SubjectProcess) -> None:
    comparisons = (
        compared(seed, Deepest(), process, None, Eviction.ADVERSARIAL)[0].difference for seed in range(TRACES)
    )
    assert any(difference is not None and difference.what == "admissions" for difference in comparisons)
