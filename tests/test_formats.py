"""Every format says the same as the exit code: what is unknown, vacuous or not inductive never reads as success."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import attrs
import jsonschema
import pytest
from fluidattacks_core.sarif import SarifLog
from hypothesis import HealthCheck, given, settings

from hitbound import report as reporting
from hitbound.exit_codes import ExitCode
from hitbound.formats import FORMATS, rendered
from hitbound.judgement import Judgement
from hitbound.report import Report
from properties.verdict import Result, Verdict
from tests.command_line import CHECKOUT
from tests.generated_reports import OVERSTATED, POLICY, reports

SCHEMA = jsonschema.Draft202012Validator(json.loads(reporting.SCHEMA_FILE.read_text(encoding="utf-8")))


def sarif_succeeds(text: str) -> bool:
    (run,) = json.loads(text)["runs"]
    (invocation,) = run["invocations"]
    complaints = [result for result in run["results"] if not result.get("suppressions")]
    assert all(result.get("kind", "fail") == "fail" and result["level"] == "error" for result in run["results"])
    assert bool(complaints) == (invocation["exitCode"] != 0)
    assert invocation["executionSuccessful"] == (invocation["exitCode"] in (0, 1))
    return not complaints


def junit_succeeds(text: str) -> bool:
    root = ElementTree.fromstring(text)
    return int(root.attrib["failures"]) + int(root.attrib["errors"]) == 0


SUCCEEDS: dict[str, Callable[[str], bool]] = {
    "text": lambda text: "\nexit code 0: " in text,
    "json": lambda text: json.loads(text)["exit_code"] == 0,
    "sarif": sarif_succeeds,
    "junit": junit_succeeds,
    "github": lambda text: not any(line.startswith("::error ") for line in text.splitlines()),
    "markdown": lambda text: text.splitlines()[0] == "# hitbound: passed",
    "html": lambda text: "<title>hitbound: passed</title>" in text,
}
"""Format -> whether a reader of it takes the run for a success."""


def test_every_format_has_a_reader_here() -> None:
    assert set(SUCCEEDS) == set(FORMATS)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(report=reports)
def test_a_format_reads_as_success_exactly_if_the_exit_code_is_0(report: Report) -> None:
    for form, succeeds in SUCCEEDS.items():
        assert succeeds(rendered(report, form, 100)) == (report.code is ExitCode.REACHED), form


def one(verdict: Verdict, **more: object) -> Report:
    result = Result(property="HIT-RESUME", engine="prove", verdict=verdict, required=True, reason="for one reason")
    return Report("gate", (POLICY,), (Judgement(POLICY.name, attrs.evolve(result, **more)),), profile="ci", seed=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("verdict", [Verdict.UNKNOWN, Verdict.VACUOUS, Verdict.CTI, Verdict.HOLDS_WITHIN])
def test_what_was_not_reached_is_named_with_its_reason(form: str, verdict: Verdict) -> None:
    text = rendered(one(verdict), form, 100)
    assert not SUCCEEDS[form](text)
    assert verdict.value in text
    assert "for one reason" in text


@pytest.mark.parametrize("form", FORMATS)
def test_nothing_required_is_no_success(form: str) -> None:
    for report in (one(Verdict.PROVED, required=False), Report("gate", (POLICY,), ())):
        assert not SUCCEEDS[form](rendered(report, form, 100))


@pytest.mark.parametrize("form", sorted(set(FORMATS) - {"json"}))
def test_a_violation_is_drawn(form: str) -> None:
    text = rendered(one(Verdict.VIOLATED, trace=OVERSTATED), form, 100)
    assert "admits replay: L = 64, E = 0, R = 64 of N = 96 tokens" in text
    assert "L = R = 64" in text


@settings(max_examples=40, deadline=None)
@given(report=reports)
def test_json_and_sarif_keep_their_schemas(report: Report) -> None:
    SCHEMA.validate(json.loads(rendered(report, "json", 100)))
    SarifLog.model_validate_json(rendered(report, "sarif", 100))


def test_a_wrong_sarif_document_is_seen() -> None:
    document = json.loads(rendered(one(Verdict.UNKNOWN), "sarif", 100))
    document["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(ValueError, match="level"):
        SarifLog.model_validate(document)


COUNTS = {"failures": "failure", "errors": "error", "skipped": "skipped"}


@settings(max_examples=40, deadline=None)
@given(report=reports)
def test_junit_has_the_structure_that_its_readers_know(report: Report) -> None:
    """There is no standard; this is what the schema of Jenkins and the readers of GitHub and GitLab have in common."""
    root = ElementTree.fromstring(rendered(report, "junit", 100))
    assert root.tag == "testsuites"
    for element in (root, *root):
        assert int(element.attrib["tests"]) == len(element.findall(".//testcase"))
        for attribute, tag in COUNTS.items():
            assert int(element.attrib[attribute]) == len(element.findall(f".//{tag}"))
    for suite in root:
        assert suite.tag == "testsuite"
        assert set(suite.attrib) == {"name", "tests", *COUNTS}
        for case in suite:
            assert case.tag == "testcase"
            assert set(case.attrib) == {"classname", "name"}
            assert len(case) <= 1
            for complaint in case:
                assert complaint.tag in COUNTS.values()
                assert set(complaint.attrib) == ({"message"} if complaint.tag == "skipped" else {"message", "type"})


def test_annotations_escape_what_ends_a_command() -> None:
    text = rendered(one(Verdict.UNKNOWN, reason="100% \n::error::forged"), "github", 100)
    (command,) = text.splitlines()[1:]
    assert command.startswith("::error file=model/policies/vllm.py,line=")
    assert command.endswith(",title=hitbound%3A UNKNOWN HIT-RESUME::vllm-0.24: 100%25 %0A::error::forged")


def test_paths_are_from_the_repository_also_where_the_gate_runs_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(CHECKOUT))
    monkeypatch.chdir(CHECKOUT / "tests")
    assert "::error file=model/policies/vllm.py,line=" in rendered(one(Verdict.UNKNOWN), "github", 100)
    assert '"uri": "model/policies/vllm.py"' in rendered(one(Verdict.UNKNOWN), "sarif", 100)
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    assert "::error title=" in rendered(one(Verdict.UNKNOWN), "github", 100)


def test_markdown_escapes_what_ends_a_table() -> None:
    text = rendered(one(Verdict.UNKNOWN, reason="a | b\n<script>"), "markdown", 100)
    assert "a \\| b \\<script>" in text


def test_the_text_fits_a_narrow_terminal() -> None:
    report = one(Verdict.VIOLATED, trace=OVERSTATED)
    for width in (60, 80, 120):
        lines = rendered(report, "text", width).splitlines()
        assert max(map(len, lines)) <= width, width
