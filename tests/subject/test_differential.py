"""The model against a real vLLM, named by HITBOUND_SUBJECT_PYTHON and HITBOUND_SUBJECT_TREE, decision by decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from model.configuration import Eviction, GroupKind
from model.policies import POLICIES
from model.policies.vllm import Vllm028
from model.policy import Policy, Summary
from model.release import Release, rules_of
from properties.features import Feature
from subjects.conform import rules_on_a_subject
from subjects.differential import Comparison, Ending, Run
from subjects.generation import random_trace
from subjects.process import SubjectProcess, subject_from_environment

TRACES = 100
"""Per configuration class and eviction mode."""

pytestmark = pytest.mark.subject


@pytest.fixture(scope="module")
def subject() -> Iterator[SubjectProcess]:
    found = subject_from_environment()
    if found is None:
        pytest.skip("no subject")
    with SubjectProcess(found) as process:
        yield process


def policy_of(release: str) -> Policy:
    """The policy of the subject's release; the releases before 0.27 also cut prefill chunks in another way."""
    era = "vllm-" + ".".join(release.split(".")[:2])
    if era not in ("vllm-0.27", "vllm-0.28"):
        pytest.skip(f"the scheduler of {release} is not the one that is modelled")
    return POLICIES[era]


def compared(
    seed: int,
    policy: Policy,
    process: SubjectProcess,
    second_attention: GroupKind | None,
    eviction: Eviction,
    features: frozenset[Feature] = frozenset(),
    release: Release | None = None,
) -> tuple[Comparison, set[str]]:
    trace = random_trace(
        seed,
        policy,
        second_attention=second_attention,
        eviction=eviction,
        features=features,
        release=release or rules_of(process.release),
    )
    run = Run(trace.configuration, policy, process)
    return run.run(trace.actions), run.events


@pytest.mark.parametrize("eviction", list(Eviction))
@pytest.mark.parametrize("second_attention", [None, GroupKind.SLIDING_WINDOW])
def test_no_decision_differs(subject: SubjectProcess, second_attention: GroupKind | None, eviction: Eviction) -> None:
    policy = policy_of(subject.release)
    endings: Counter[Ending] = Counter()
    met: set[str] = set()
    for seed in range(TRACES):
        comparison, events = compared(seed, policy, subject, second_attention, eviction)
        assert comparison.difference is None, f"seed {seed}: {comparison.difference}"
        endings[comparison.ending] += 1
        met |= events
    assert endings[Ending.EQUAL] > TRACES // 2
    assert {"local hit", "synchronous load", "asynchronous load", "divergent admission", "preemption"} <= met


@pytest.mark.parametrize("second_attention", [None, GroupKind.SLIDING_WINDOW])
def test_no_decision_differs_with_draft_models_retention_and_chunks(
    subject: SubjectProcess, second_attention: GroupKind | None
) -> None:
    features = frozenset({Feature.DRAFT_MODEL, Feature.SPARSE_RETENTION, Feature.CHUNKED_LOCAL})
    policy = policy_of(subject.release)
    for seed in range(TRACES):
        comparison, _ = compared(seed, policy, subject, second_attention, Eviction.ADVERSARIAL, features)
        assert comparison.difference is None, f"seed {seed}: {comparison.difference}"


@pytest.mark.parametrize("eviction", list(Eviction))
@pytest.mark.parametrize("second_attention", [None, GroupKind.SLIDING_WINDOW])
def test_no_decision_differs_with_partial_tails(
    subject: SubjectProcess, second_attention: GroupKind | None, eviction: Eviction
) -> None:
    if tuple(map(int, subject.release.split(".")[:2])) < (0, 28):
        pytest.skip(f"the scheduler of {subject.release} is not the one that is modelled")
    tails, rules = frozenset({Feature.PARTIAL_TAILS}), rules_on_a_subject(subject.release)
    met: set[str] = set()
    for seed in range(TRACES):
        comparison, events = compared(
            seed, POLICIES["vllm-0.28"], subject, second_attention, eviction, tails, release=rules
        )
        assert comparison.difference is None, f"seed {seed}: {comparison.difference}"
        assert comparison.ending is Ending.EQUAL
        met |= events
    assert {"partial tail copied", "partial tail moved", "partial tail dropped", "alias", "synchronous load"} <= met


def test_no_decision_differs_with_context_parallelism(subject: SubjectProcess) -> None:
    if tuple(map(int, subject.release.split(".")[:2])) < (0, 28):
        pytest.skip(f"the scheduler of {subject.release} is not the one that is modelled")
    features, rules = frozenset({Feature.CONTEXT_PARALLEL}), rules_on_a_subject(subject.release)
    met: set[str] = set()
    for seed in range(TRACES // 4):
        for eviction in Eviction:
            comparison, events = compared(seed, POLICIES["vllm-0.28"], subject, None, eviction, features, rules)
            assert comparison.ending is not Ending.DIFFERENT, f"seed {seed}: {comparison.difference}"
            met |= events
    assert {"local hit", "unaligned R", "synchronous load", "asynchronous load"} <= met


class Deepest(Vllm028):
    """A wrong policy: the deepest hit of any group."""

    def local(self, summary: Summary) -> tuple[int, bool]:
        return summary.deepest, summary.shallowest < summary.deepest


def test_another_policy_is_told_apart(subject: SubjectProcess) -> None:
    policy_of(subject.release)
    comparisons = (
        compared(seed, Deepest(), subject, None, Eviction.ADVERSARIAL)[0].difference for seed in range(TRACES)
    )
    assert any(difference is not None and difference.what == "admissions" for difference in comparisons)
