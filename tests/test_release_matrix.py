"""The pages about real releases say what was measured, for every trace and release, and match the table that was there
before. No subject runs here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import release_matrix
from hitbound.corpus import finding_traces
from hitbound.expectation import unmet
from hitbound.export_command import exported
from model.policies import policy_named
from properties.replay import replay
from tests.scenarios import SCENARIOS, adopted, is_wrong

RELEASES = [
    f"0.{release}" for release in ("23.0", "24.0", "25.1", "26.0", "27.0", "27.1", *(f"{n}.0" for n in range(28, 34)))
]
MEASURED: dict[str, Any] = json.loads(release_matrix.DATA.read_text(encoding="utf-8"))
FINDINGS = release_matrix.DOCS / "findings"


def test_every_release_ran_the_same_traces_and_none_that_is_gone() -> None:
    assert list(MEASURED) == RELEASES
    for measured in MEASURED.values():
        assert measured["cells"].keys() == MEASURED[RELEASES[0]]["cells"].keys() <= release_matrix.traces().keys()
        assert measured["exported"].keys() == finding_traces().keys()


def test_the_page_is_written_from_what_was_measured() -> None:
    assert release_matrix.page(MEASURED) == release_matrix.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", finding_traces())
def test_the_page_of_a_finding_says_on_which_releases_its_test_fails(name: str) -> None:
    text = (FINDINGS / f"{name}.md").read_text(encoding="utf-8")
    assert release_matrix.with_releases(text, name, MEASURED) == text


@pytest.mark.parametrize("release", RELEASES)
def test_the_scenarios_are_those_that_were_seen_before(release: str) -> None:
    for scenario in SCENARIOS:
        cell = MEASURED[release]["cells"][scenario]
        assert cell.strip("*") == adopted(scenario, release), scenario
        assert cell.startswith("**") == is_wrong(scenario, release), scenario


@pytest.mark.parametrize("release", release_matrix.WANTED)
def test_the_faults_are_found_unaided_within_a_minute_and_made_small(release: str) -> None:
    found = MEASURED[release]["unaided"]
    assert found["property"] == f"HIT-RESUME ({release_matrix.WANTED[release].value})"
    assert found["seconds"] + found["shrinking"] < 60
    assert found["actions"] <= 8


def test_the_list_of_findings_names_the_releases_on_which_their_tests_fail() -> None:
    listed = (FINDINGS / "README.md").read_text(encoding="utf-8")
    assert release_matrix.FAILURES.keys() == finding_traces().keys()
    for name in finding_traces():
        assert f"({name}.md) | {release_matrix.affected(name, MEASURED)} |" in listed, name


@pytest.mark.parametrize("name", finding_traces())
def test_the_trace_of_a_finding_shows_what_it_states(name: str) -> None:
    trace = finding_traces()[name]
    for expected in trace.expectations:
        assert unmet(expected, replay(trace, policy_named(expected.policy))) == []


def test_every_page_is_in_the_list_of_findings() -> None:
    listed = (FINDINGS / "README.md").read_text(encoding="utf-8")
    assert [
        page.name for page in FINDINGS.glob("*.md") if page.name != "README.md" and f"({page.name})" not in listed
    ] == []


def test_only_the_finding_about_auxiliary_outputs_switches_them_on() -> None:
    switched_on = {
        name
        for name, trace in finding_traces().items()
        if "AUXILIARY_OUTPUTS = True" in exported(trace, "vllm-test", None)
    }
    assert switched_on == {"auxiliary-outputs"}
