"""`hitbound conform` on a real vLLM: what is right stays silent, and a faulty checkout is found out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from properties.verdict import Case
from subjects.conform import NO_ENGINE_ERROR, Outcome, conform
from subjects.courses import Profile, courses_on, policy_of
from subjects.process import Subject, SubjectProcess, subject_from_environment
from subjects.results import findings

SHORT = Profile("short", traces=60, actions=25, seed=0)

pytestmark = pytest.mark.subject


@pytest.fixture(scope="module")
def subject() -> Subject:
    found = subject_from_environment()
    if found is None:
        pytest.skip("no subject")
    return found


@pytest.fixture(scope="module")
def unmodified(subject: Subject) -> Iterator[tuple[SubjectProcess, Outcome]]:
    with SubjectProcess(subject) as process:
        if not process.release.startswith("0.28"):
            pytest.skip("the expected findings are those of 0.28")
        yield process, conform(process, policy_of(process.release), SHORT, 0, compare=True)


def without_the_capability_check(tree: Path, directory: Path) -> Path:
    """The source tree with one file replaced: a divergent lookup is offered to every connector again (as in 0.27)."""
    path = Path("vllm/v1/core/sched/scheduler.py")
    for parent in reversed(path.parents):
        (directory / parent).mkdir(exist_ok=True)
        for entry in (tree / parent).iterdir():
            if entry.name not in path.parts:
                (directory / parent / entry.name).symlink_to(entry)
    text = (tree / path).read_text(encoding="utf-8")
    check = " and connector.supports_divergent_local_hybrid_hits"
    assert text.count(check) == 1
    (directory / path).write_text(text.replace(check, ""), encoding="utf-8")
    return directory


def test_an_unmodified_release_decides_as_the_model_does(unmodified: tuple[SubjectProcess, Outcome]) -> None:
    _, outcome = unmodified
    assert not outcome.differences
    assert set(outcome.traces) == set(courses_on(outcome.release))
    assert {"LOCAL-HIT", "DIVERGENT-HIT", "LOADED-ASYNCHRONOUSLY", "EVICTED-BY-REUSE"} <= frozenset().union(
        *outcome.happened
    )


def test_an_unmodified_release_holds_what_its_policy_holds(unmodified: tuple[SubjectProcess, Outcome]) -> None:
    process, outcome = unmodified
    one_attention_spec = [
        found.signature.property
        for found in findings(outcome, process)
        if found.signature.configuration_class.value == "one_attention_spec"
    ]
    assert set(one_attention_spec) <= {NO_ENGINE_ERROR}


def test_the_capability_check_taken_out_is_found_with_a_short_trace(subject: Subject, tmp_path: Path) -> None:
    broken = attrs.evolve(subject, tree=without_the_capability_check(subject.tree, tmp_path))
    with SubjectProcess(broken) as process:
        outcome = conform(process, policy_of("0.28.0"), SHORT, 0, compare=False)
        found = {(each.signature.property, each.signature.case): each for each in findings(outcome, process)}
    resumed = found["HIT-RESUME", Case.EXTERNAL]
    assert len(resumed.replay.trace.actions) <= 5
    assert "state@" in resumed.message
    assert ("CAP-MEET", None) in found
