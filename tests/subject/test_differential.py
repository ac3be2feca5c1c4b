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
from properties.judge import events
from subjects.courses import rules_on_a_subject
from subjects.differential import Comparison, Ending, compared, start
from subjects.generation import random_run
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


def comparison_of(
    seed: int,
    policy: Policy,
    process: SubjectProcess,
    second_attention: GroupKind | None,
    eviction: Eviction,
    features: frozenset[Feature] = frozenset(),
    release: Release | None = None,
) -> tuple[Comparison, set[str]]:
    """How a random trace compares, and the events in it."""
    run = random_run(
        seed,
        policy,
        second_attention=second_attention,
        eviction=eviction,
        features=features,
        release=release or rules_of(process.release),
        actions=25,
    )
    return compared(run, start(run, process)), {name for _, seen in run.numbered for name in events(seen)}


@pytest.mark.parametrize("eviction", list(Eviction))
@pytest.mark.parametrize("second_attention", [None, GroupKind.SLIDING_WINDOW])
def test_no_decision_differs(subject: SubjectProcess, second_attention: GroupKind | None, eviction: Eviction) -> None:
    policy = policy_of(subject.release)
    endings: Counter[Ending] = Counter()
    met: set[str] = set()
    for seed in range(TRACES):
        comparison, happened = comparison_of(seed, policy, subject, second_attention, eviction)
        assert comparison.difference is None, f"seed {seed}: {comparison.difference}"
        endings[comparison.ending] += 1
        met |= happened
    assert endings[Ending.EQUAL] > TRACES // 2
    assert {"LOCAL-HIT", "EXTERNAL-HIT", "LOADED-ASYNCHRONOUSLY", "DIVERGENT-HIT", "PREEMPTED"} <= met


@pytest.mark.parametrize("second_attention", [None, GroupKind.SLIDING_WINDOW])
def test_no_decision_differs_with_draft_models_retention_and_chunks(
    subject: SubjectProcess, second_attention: GroupKind | None
) -> None:
    features = frozenset({Feature.DRAFT_MODEL, Feature.SPARSE_RETENTION, Feature.CHUNKED_LOCAL})
    policy = policy_of(subject.release)
    for seed in range(TRACES):
        comparison, _ = comparison_of(seed, policy, subject, second_attention, Eviction.ADVERSARIAL, features)
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
        comparison, happened = comparison_of(
            seed, POLICIES["vllm-0.28"], subject, second_attention, eviction, tails, release=rules
        )
        assert comparison.difference is None, f"seed {seed}: {comparison.difference}"
        assert comparison.ending is Ending.EQUAL
        met |= happened
    assert {"TAIL-COPIED", "TAIL-MOVED", "TAIL-DROPPED", "TAIL-ALIAS", "EXTERNAL-HIT"} <= met


class Deepest(Vllm028):
    """A wrong policy: the deepest hit of any group."""

    def local(self, summary: Summary) -> tuple[int, bool]:
        return summary.deepest, summary.shallowest < summary.deepest


def test_another_policy_is_told_apart(subject: SubjectProcess) -> None:
    policy_of(subject.release)
    comparisons = (
        comparison_of(seed, Deepest(), subject, None, Eviction.ADVERSARIAL)[0].difference for seed in range(TRACES)
    )
    assert any(difference is not None and difference.what == "admissions" for difference in comparisons)
