"""Findings that are written up: their ids in reports, and what a `--known` file accepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from hitbound.formats import FORMATS, rendered
from hitbound.gate import judge
from hitbound.judgement import Judgement
from hitbound.known_findings import KnownFindingsError, Sighting, mark_known, read_known, stale, written_up
from hitbound.report import Report
from model.configuration import ConfigurationClass, WorkerOrder
from model.connector import Contract
from model.policies import DEFAULT_POLICY, POLICIES
from properties.trace_document import read_trace
from properties.verdict import Cell, Result, Verdict
from tests.command_line import CHECKOUT
from tests.generated_reports import OVERSTATED, POLICY
from tests.proofs import proof_of

FILES = sorted((CHECKOUT / "hitbound" / "known").glob("*.json"))
PAGES = CHECKOUT / "docs" / "findings"

SIGHTING = Sighting(
    "vllm==0.33.0", "NO-ENGINE-ERROR", "ValueError: Cannot get n free blocks from the pool; one attention spec"
)
"""Of block-estimate-one-short."""


def seen(sighting: Sighting, **more: object) -> Judgement:
    result = Result(
        property=sighting.property,
        engine="conform",
        verdict=Verdict.VIOLATED,
        required=True,
        cell=sighting.cell,
        reason="for one reason",
        trace=OVERSTATED,
    )
    return Judgement(sighting.policy, attrs.evolve(result, **more), signature=sighting.signature)  # type: ignore[arg-type]


def known_file(directory: Path, *entries: dict[str, Any]) -> Path:
    file = directory / "known.json"
    file.write_text(json.dumps({"schema": "hitbound-known/1", "findings": entries}))
    return file


def test_every_finding_that_shows_in_reports_has_its_page() -> None:
    assert {f"{name}.md" for name in written_up()} <= {page.name for page in PAGES.iterdir()}


def test_no_violation_is_written_up_twice() -> None:
    sightings = [each for found in written_up().values() for each in found]
    assert len(sightings) == len(set(sightings))


@pytest.mark.slow
def test_every_violation_of_the_newest_release_is_written_up_and_occurs() -> None:
    findings = read_known(CHECKOUT / "hitbound" / "known" / "vllm.json")
    judgements = mark_known(judge(POLICIES[DEFAULT_POLICY], proof_of(DEFAULT_POLICY), both_solvers=True), findings)
    violated = [judgement for judgement in judgements if judgement.verdict is Verdict.VIOLATED]
    assert violated
    assert [judgement for judgement in violated if not (judgement.known and judgement.finding)] == []
    written = {
        each for found in written_up().values() for each in found if each.policy == DEFAULT_POLICY and not each.sampled
    }
    assert [each for each in written if not any(each.matches(judgement) for judgement in violated)] == []
    assert not stale(findings, judgements)


@pytest.mark.parametrize(("file", "policy"), list(zip(FILES, ("vllm", DEFAULT_POLICY), strict=True)))
def test_the_known_files_name_all_findings_of_what_they_are_about(file: Path, policy: str) -> None:
    expected = {name for name, found in written_up().items() if any(each.policy == policy for each in found)}
    entries = json.loads(file.read_text())["findings"]
    assert {(entry["policy"], entry["finding"]) for entry in entries} == {(policy, name) for name in expected}
    assert len(read_known(file)) == len(entries)


def test_what_only_some_seeds_find_need_not_occur() -> None:
    """The engine stops where a tail is dropped while attention lags: one run in some thousand gets there."""
    (known,) = (
        finding
        for finding in read_known(CHECKOUT / "hitbound" / "known" / "vllm.json")
        if finding.told == "tail-lost-while-attention-lags"
    )
    trace = read_trace(CHECKOUT / "tests" / "corpus" / "findings" / "tail-lost-while-attention-lags.json")
    found = Result(
        property="PROGRESS",
        engine="fuzz",
        verdict=Verdict.VIOLATED,
        required=False,
        cell=Cell(
            Contract.FULL,
            WorkerOrder.LOAD_BEFORE_COPY,
            ConfigurationClass.SECOND_ATTENTION_SPEC_PARTIAL_TAILS,
        ),
        trace=trace,
    )
    policy = POLICIES[DEFAULT_POLICY]
    (violation,) = mark_known(judge(policy, [found], both_solvers=False), [known])
    assert (violation.finding, violation.known) == (known.told, True)
    assert stale([known], [attrs.evolve(violation, result=attrs.evolve(found, verdict=Verdict.HOLDS_WITHIN))]) == ()


@pytest.mark.parametrize("form", FORMATS)
def test_a_violation_carries_its_finding_in_every_format_and_still_fails(form: str) -> None:
    sighting = attrs.evolve(SIGHTING, policy=POLICY.name)
    judgement = attrs.evolve(seen(sighting), finding="block-estimate-one-short")
    report = Report("conform", (POLICY,), (judgement,))
    assert report.code.value == 1
    assert "block-estimate-one-short" in rendered(report, form, 200)


def test_what_is_written_up_is_accepted_only_by_a_file_that_names_it(tmp_path: Path) -> None:
    (judgement,) = mark_known((seen(SIGHTING),), ())
    assert (judgement.finding, judgement.known, judgement.word) == ("block-estimate-one-short", False, "VIOLATED")
    accepting = read_known(known_file(tmp_path, {"policy": SIGHTING.policy, "finding": judgement.finding}))
    (judgement,) = mark_known((seen(SIGHTING),), accepting)
    assert (judgement.finding, judgement.known) == ("block-estimate-one-short", True)
    other = mark_known((seen(attrs.evolve(SIGHTING, signature="AssertionError; one attention spec")),), accepting)
    assert [(each.finding, each.known) for each in other] == [("", False)]
    assert [finding.told for finding in stale(accepting, other)] == ["block-estimate-one-short"]


def test_what_holds_carries_no_finding() -> None:
    assert mark_known((seen(SIGHTING, verdict=Verdict.HOLDS_WITHIN),), ())[0].finding == ""


def test_a_violation_of_the_users_own_is_accepted_as_it_is_described(tmp_path: Path) -> None:
    own = {"policy": "mine", "property": "HIT-RESUME", "signature": "E > 0; diverged", "why": "our ticket"}
    accepting = read_known(known_file(tmp_path, own))
    (judgement,) = mark_known((seen(Sighting("mine", "HIT-RESUME", "E > 0; diverged")),), accepting)
    assert judgement.known
    assert not mark_known((seen(Sighting("mine", "HIT-RESUME", "E > 0")),), accepting)[0].known


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"policy": "vllm", "finding": "no-such"}, 'no finding "no-such" of vllm is written up; there are'),
        ({"policy": "mine", "finding": "copy-before-load"}, 'no finding "copy-before-load" of mine'),
        ({"policy": "vllm-0.33", "finding": "copy-before-load", "why": "so"}, 'only "policy" goes with it'),
        ({"policy": "mine", "property": "HIT-RESUME"}, 'needs "finding", or "property", "signature" and "why"'),
    ],
)
def test_a_wrong_entry_is_refused_with_what_to_do(tmp_path: Path, entry: dict[str, Any], said: str) -> None:
    with pytest.raises(KnownFindingsError) as refused:
        read_known(known_file(tmp_path, entry))
    assert said in str(refused.value)
