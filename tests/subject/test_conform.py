"""`hitbound conform` on a real vLLM: what is right stays silent, and a faulty checkout is found out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from properties.verdict import REQUIRED_CELL, Case
from subjects.conform import NO_ENGINE_ERROR, Outcome, Signature, conform
from subjects.courses import Profile, courses_on, policy_of
from subjects.process import SubjectProcess
from subjects.results import findings
from tests.installed import REQUIRED, installed_subject
from tests.subject.changed_tree import changed

SHORT = Profile("short", traces=60, actions=25, seed=0)

pytestmark = pytest.mark.subject


NEWEST = REQUIRED[-1]


@pytest.fixture(scope="module")
def unmodified(process: SubjectProcess) -> tuple[SubjectProcess, Outcome]:
    return process, conform(process, policy_of(process.release), SHORT, 0, compare=True)


on_the_newest = pytest.mark.parametrize("process", [NEWEST], indirect=True)


def only(outcome: Outcome, wanted: Callable[[Signature], bool]) -> Outcome:
    """Only what is wanted of what was found: making a finding smaller takes most of the time."""
    return attrs.evolve(outcome, found={signature: of for signature, of in outcome.found.items() if wanted(signature)})


@on_the_newest
def test_an_unmodified_release_decides_as_the_model_does(unmodified: tuple[SubjectProcess, Outcome]) -> None:
    _, outcome = unmodified
    assert not outcome.differences
    assert set(outcome.traces) == set(courses_on(outcome.release))
    assert {"LOCAL-HIT", "DIVERGENT-HIT", "LOADED-ASYNCHRONOUSLY", "EVICTED-BY-REUSE"} <= frozenset().union(
        *outcome.happened
    )


@on_the_newest
def test_an_unmodified_release_holds_what_its_policy_holds(unmodified: tuple[SubjectProcess, Outcome]) -> None:
    process, outcome = unmodified
    one_attention_spec = only(
        outcome, lambda signature: signature.configuration_class is REQUIRED_CELL.configuration_class
    )
    found = {each.signature.property for each in findings(one_attention_spec, process)}
    assert found <= {NO_ENGINE_ERROR}


def test_the_capability_check_taken_out_is_found_with_a_short_trace(tmp_path: Path) -> None:
    subject = installed_subject(NEWEST)
    # A divergent lookup is offered to every connector again, as in 0.27.
    check = " and connector.supports_divergent_local_hybrid_hits"
    broken = changed(subject, tmp_path, "sched/scheduler.py", check, "")
    with SubjectProcess(broken) as process:
        outcome = conform(process, policy_of(NEWEST), SHORT, 0, compare=False)
        wanted = only(outcome, lambda signature: signature.property in ("HIT-RESUME", "CAP-MEET"))
        found = {(each.signature.property, each.signature.case): each for each in findings(wanted, process)}
    resumed = found["HIT-RESUME", Case.EXTERNAL]
    assert len(resumed.replay.trace.actions) <= 5
    assert "state@" in resumed.message
    assert ("CAP-MEET", None) in found
