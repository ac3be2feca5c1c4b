"""The model against a real vLLM, decision by decision."""

from __future__ import annotations

import attrs
import pytest

from model.configuration import Eviction, GroupKind
from model.policies.vllm import Vllm028
from model.policy import Policy, Summary
from properties.events import speculation
from properties.features import Feature
from properties.judge import events
from subjects.conform import judged, run_on
from subjects.courses import courses_on, policy_of, rules_on_a_subject, run_of
from subjects.differential import Comparison, Ending, compared, start
from subjects.generation import random_run
from subjects.process import SubjectProcess
from tests.installed import REQUIRED

TRACES = 30
"""Per configuration class and eviction mode."""

pytestmark = pytest.mark.subject

on_required_releases = pytest.mark.parametrize("process", REQUIRED, indirect=True)
on_the_newest = pytest.mark.parametrize("process", REQUIRED[-1:], indirect=True)
with_and_without_a_window = pytest.mark.parametrize("second_attention", [None, GroupKind.SLIDING_WINDOW])


def comparison_of(
    seed: int,
    policy: Policy,
    process: SubjectProcess,
    second_attention: GroupKind | None,
    eviction: Eviction,
    features: frozenset[Feature] = frozenset(),
) -> tuple[Comparison, set[str]]:
    run = random_run(
        seed,
        policy,
        second_attention=second_attention,
        eviction=eviction,
        features=features,
        release=rules_on_a_subject(process.release),
        actions=25,
    )
    return compared(run, start(run, process)), {name for _, seen in run.numbered for name in events(seen)}


def what_is_met(
    process: SubjectProcess,
    second_attention: GroupKind | None,
    eviction: Eviction,
    features: frozenset[Feature] = frozenset(),
) -> set[str]:
    """The events of all traces, in which nothing differs."""
    met: set[str] = set()
    for seed in range(TRACES):
        comparison, happened = comparison_of(
            seed, policy_of(process.release), process, second_attention, eviction, features
        )
        assert comparison.difference is None, f"seed {seed}: {comparison.difference}"
        assert comparison.ending is Ending.EQUAL
        met |= happened
    return met


@on_required_releases
@pytest.mark.parametrize("eviction", list(Eviction))
@with_and_without_a_window
def test_no_decision_differs(process: SubjectProcess, second_attention: GroupKind | None, eviction: Eviction) -> None:
    assert {
        "LOCAL-HIT",
        "EXTERNAL-HIT",
        "LOADED-ASYNCHRONOUSLY",
        "DIVERGENT-HIT",
        "PREEMPTED",
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
    assert {"TAIL-COPIED", "TAIL-MOVED", "TAIL-DROPPED", "TAIL-ALIAS", "EXTERNAL-HIT"} <= met


@on_the_newest
@pytest.mark.parametrize("eviction", list(Eviction))
@pytest.mark.parametrize("second_attention", [None, GroupKind.FULL_ATTENTION])
def test_no_decision_differs_with_context_parallelism(
    process: SubjectProcess, second_attention: GroupKind | None, eviction: Eviction
) -> None:
    met = what_is_met(process, second_attention, eviction, frozenset({Feature.CONTEXT_PARALLEL}))
    assert {"LOCAL-HIT", "UNALIGNED-RESUME", "EXTERNAL-HIT", "LOADED-ASYNCHRONOUSLY"} <= met


@on_the_newest
def test_what_is_judged_of_the_model_is_judged_of_the_subject_alone(process: SubjectProcess) -> None:
    policy, executed = policy_of(process.release), 0
    for seed, course in enumerate(courses_on(process.release)):
        run = run_of(course, seed, policy, process.release, actions=20)
        comparison = compared(run, start(run, process))
        if comparison.ending is not Ending.EQUAL or comparison.failure:
            continue
        alone = run_on(run.trace, policy, process, whole=True)
        seen = [observation for _, observation in run.numbered]
        assert [each.execution for each in alone.observations] == [each.execution for each in seen]
        found = [(index, violation) for index, each in run.numbered for violation in judged(each)]
        assert [(violation.action, attrs.evolve(violation, action=None)) for violation in alone.violations] == found
        executed += sum(each.execution is not None for each in seen)
    assert executed > 100


@on_the_newest
@with_and_without_a_window
@pytest.mark.parametrize(
    "others",
    [
        frozenset[Feature](),
        frozenset({Feature.DRAFT_MODEL, Feature.PARTIAL_TAILS}),
        frozenset({Feature.STEPS_IN_FLIGHT, Feature.PARTIAL_TAILS}),
    ],
)
def test_no_decision_differs_with_drafts(
    process: SubjectProcess, second_attention: GroupKind | None, others: frozenset[Feature]
) -> None:
    met = what_is_met(process, second_attention, Eviction.LRU, others | {Feature.SPECULATION})
    only_in_flight = set() if Feature.STEPS_IN_FLIGHT in others else {"REJECTED-IN-FLIGHT"}
    assert {event.id for event in speculation.ENTRIES} - only_in_flight <= met


@on_the_newest
@pytest.mark.parametrize("eviction", list(Eviction))
@pytest.mark.parametrize(
    ("adjustment", "meets"),
    [(Feature.AUXILIARY_OUTPUTS, {"OUTPUTS-MISSING"}), (Feature.PREFIX_REPLAY, {"HIT-RERUN", "SHORT-HIT"})],
)
def test_no_decision_differs_where_something_changes_an_answer(
    process: SubjectProcess, adjustment: Feature, meets: set[str], eviction: Eviction
) -> None:
    met = what_is_met(process, None, eviction, frozenset({adjustment, Feature.SKIPPED_READING}))
    assert meets | {"LOCAL-HIT", "READING-SKIPPED"} <= met


@on_required_releases
def test_no_decision_differs_with_priorities(process: SubjectProcess) -> None:
    met: set[str] = set()
    for second_attention in (None, GroupKind.SLIDING_WINDOW):
        met |= what_is_met(process, second_attention, Eviction.LRU, frozenset({Feature.PRIORITIES}))
    assert {"PREEMPTED", "TAKEN-OUT"} <= met


class Deepest(Vllm028):
    """A wrong policy: the deepest hit of any group."""

    def local(self, summary: Summary) -> tuple[int, bool]:
        return summary.deepest, summary.shallowest < summary.deepest


@on_the_newest
def test_another_policy_is_told_apart(process: SubjectProcess) -> None:
    comparisons = (
        comparison_of(seed, Deepest(), process, None, Eviction.ADVERSARIAL)[0].difference for seed in range(TRACES)
    )
    assert any(difference is not None and difference.what == "admissions" for difference in comparisons)
