"""Public reports: each is reproduced before its fix and absent after it, and a case that shows less is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import pytest

from benchmarks.public_reports import DATA, PAGE, page
from hitbound.corpus import cases
from hitbound.exit_codes import ExitCode, exit_code
from hitbound.reproduce_command import UnknownReport, as_json, chosen, judgements
from hitbound.unaided import Hunt, hunt
from hitbound.unaided_text import as_json as unaided_json
from hitbound.unaided_text import judgements as hunts_judged
from hitbound.unaided_text import table
from properties.case_document import (
    SCHEMA_FILE,
    Case,
    CaseDocumentError,
    Engine,
    Unaided,
    case_from_document,
    read_case,
)
from properties.catalogue import INVARIANTS, Kind
from properties.reproduce import reproduce
from properties.verdict import Case as VerdictCase
from properties.verdict import Verdict
from tests.command_line import CORPUS, run_in

FILES = sorted((CORPUS / "reports").glob("*.json"))
VALIDATOR = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))
PLAIN = CORPUS / "reports" / "16_vllm_44409.json"

pytestmark = pytest.mark.corpus

Change = Callable[[dict[str, Any]], object]


def changed(change: Change) -> dict[str, Any]:
    """The document of record 16 with one change."""
    document = json.loads(PLAIN.read_text(encoding="utf-8"))
    change(document)
    return document  # type: ignore[no-any-return]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_report_is_reproduced(path: Path) -> None:
    assert reproduce(read_case(path)).problems == ()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_published_schema_accepts_the_case(path: Path) -> None:
    VALIDATOR.validate(json.loads(path.read_text(encoding="utf-8")))


HUNTS = [
    pytest.param(path, id=path.stem, marks=[] if search.engine is Engine.PROVE else pytest.mark.nightly)
    for path in FILES
    if (search := read_case(path).unaided)
]


@pytest.mark.slow
@pytest.mark.parametrize("path", HUNTS)
def test_an_engine_finds_it_without_the_trace(path: Path) -> None:
    found = hunted(read_case(path))
    assert (found.before.verdict, found.found) == (Verdict.VIOLATED, True)


def hunted(case: Case) -> Hunt:
    """Both searches of a case that names an engine."""
    found = hunt(case, lambda _: None)
    assert found is not None
    return found


@pytest.mark.parametrize("engine", Engine)
def test_a_search_that_finds_nothing_before_the_fix_is_vacuous(engine: Engine) -> None:
    case = read_case(CORPUS / "reports" / "34_vllm_43935.json")
    sought = Unaided(engine=engine, property="HIT-LAST", case=VerdictCase.LOCAL, runs=2)
    found = hunted(attrs.evolve(case, unaided=sought))
    assert (found.verdict, found.found) == (Verdict.VACUOUS, False)


def test_a_search_that_still_finds_it_after_the_fix_is_violated() -> None:
    case = read_case(CORPUS / "reports" / "01_vllm_46453.json")
    found = hunted(attrs.evolve(case, after=case.before))
    assert (found.verdict, found.found) == (Verdict.VIOLATED, False)
    assert exit_code(hunts_judged([found])) is ExitCode.VIOLATED


def test_what_is_found_unaided_is_told_in_a_table_and_as_json() -> None:
    found = hunted(read_case(CORPUS / "reports" / "01_vllm_46453.json"))
    assert "1 of 1 cases found unaided" in table([found])
    (result,) = json.loads(unaided_json([found]))["results"]
    assert (result["before"]["verdict"], result["after"]["verdict"], result["found"]) == ("VIOLATED", "PROVED", True)
    assert exit_code(hunts_judged([found])) is ExitCode.REACHED


def test_the_page_of_public_reports_is_as_generated() -> None:
    data = json.loads(DATA.read_text(encoding="utf-8"))
    assert PAGE.read_text(encoding="utf-8") == page(cases(), data), "run python -m benchmarks.public_reports --measure"
    covered = {case.number for case in cases()}
    left_out = {record["record"] for record in data["records"] if record["reason"]}
    assert covered | left_out == {record["record"] for record in data["records"]}


def test_what_was_measured_is_what_the_cases_name() -> None:
    named = {(case.title, case.unaided.engine.value) for case in cases() if case.unaided}
    measured = json.loads(DATA.read_text(encoding="utf-8"))["measured"]
    assert {(entry["case"], entry["engine"]) for entry in measured} <= named


def test_every_record_about_safety_is_found_unaided_in_some_case() -> None:
    measured = {entry["case"] for entry in json.loads(DATA.read_text(encoding="utf-8"))["measured"]}
    found = {case.number for case in cases() if case.title in measured}
    about_safety = {
        case.number
        for case in cases()
        if any(INVARIANTS[expected.property].kind is not Kind.COMPLETENESS for expected in case.violates)
    }
    assert about_safety <= found


def test_file_names_begin_with_the_record() -> None:
    assert [int(path.stem.split("_")[0]) for path in FILES] == [read_case(path).number for path in FILES]


@pytest.mark.parametrize(
    ("change", "problem", "code"),
    [
        (lambda d: d["before"].pop("configuration"), "before: OWN-EXCLUSIVE should be violated", ExitCode.VACUOUS),
        (lambda d: d["after"].update(d["before"]), "after: OWN-EXCLUSIVE is violated", ExitCode.VIOLATED),
        (lambda d: d["violates"][0].update(says="block 5"), "no message says 'block 5'", ExitCode.NOT_REACHED),
        (
            lambda d: d["after"]["admissions"][0].update(local=2),
            "after: replay: expected L = 2, E = 2; found L = 4, E = 2",
            ExitCode.NOT_REACHED,
        ),
        (lambda d: d["after"].update(never_admitted=["replay"]), "replay is admitted", ExitCode.NOT_REACHED),
        (lambda d: d["before"].update(assertion="boom"), "the engine should with 'boom' fail", ExitCode.NOT_REACHED),
        (
            lambda d: d["after"].update(configuration={"budget": 63}),
            "the variants differ in budget, release.adoption",
            ExitCode.NOT_REACHED,
        ),
        (lambda d: d["after"].update(policy="vllm-0.24"), "policy.lookup", ExitCode.NOT_REACHED),
        (
            lambda d: d.update(tolerates=[{"property": "CAP-MEET", "because": "x"}]),
            "CAP-MEET is tolerated and not violated",
            ExitCode.NOT_REACHED,
        ),
        (
            lambda d: d["actions"].append({"do": "evict", "group": 0, "request": "fill", "boundary": 2}),
            "LRU",
            ExitCode.NOT_REACHED,
        ),
    ],
)
def test_a_case_that_is_not_as_stated_is_not_reproduced(change: Change, problem: str, code: ExitCode) -> None:
    outcome = reproduce(case_from_document(changed(change)))
    assert problem in "\n".join(outcome.problems)
    assert exit_code(judgements([outcome])) is code


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda d: d.update(schema="other"), "$.schema"),
        (lambda d: d.update(evidence="B"), "$.assumed"),
        (lambda d: d.update(violates=[]), "$.violates"),
        (lambda d: d["violates"][0].update(property="HIT-RESUMED"), "HIT-RESUMED: no such invariant"),
        (lambda d: d["before"].update(policy="vllm-1"), "no policy 'vllm-1'"),
        (lambda d: d["before"].update(configuration={"budgets": 1}), "before: $.configuration: unknown key"),
        (lambda d: d.update(tolerates=[{"property": "OWN-EXCLUSIVE", "because": "x"}]), "is what the fix repairs"),
        (
            lambda d: d.update(unaided=None, violates=[{"property": "REACH"}], after={"policy": "vllm-0.23"}),
            "$.after.admissions",
        ),
        (lambda d: d.update(fix=[]), "`fix`"),
        (lambda d: d["unaided"].update(property="HIT-RESUME"), "$.unaided.property"),
    ],
)
def test_a_case_that_cannot_show_anything_is_refused(change: Change, error: str) -> None:
    with pytest.raises(CaseDocumentError) as refused:
        case_from_document(changed(change))
    assert error in str(refused.value)


@pytest.mark.parametrize("named", ["16", "vllm#44409", "vLLM #43884", str(PLAIN)])
def test_a_report_is_named_by_record_number_report_or_file(named: str) -> None:
    assert [case.number for case in chosen(named, every=False)] == [16]


def test_an_unknown_report_is_refused() -> None:
    with pytest.raises(UnknownReport, match="no case is about"):
        chosen("vllm#1", every=False)


def test_the_json_has_a_result_per_case() -> None:
    outcomes = [reproduce(case) for case in cases()]
    results = json.loads(as_json(outcomes))["results"]
    assert [result["record"] for result in results] == [case.number for case in cases()]
    assert {(result["before"], result["after"]) for result in results} == {("VIOLATED", "HOLDS_WITHIN")}
    assert exit_code(judgements(outcomes)) is ExitCode.REACHED


def test_the_command_draws_one_report(tmp_path: Path) -> None:
    ran = run_in(tmp_path, "reproduce", "vllm#44409")
    assert ran.code == 0, ran.err
    assert "release.adoption: group_by_group -> all_hits_first" in ran.out
    assert "reproduced: as the record states" in ran.out


def test_the_command_counts_all_records(tmp_path: Path) -> None:
    ran = run_in(tmp_path, "reproduce", "--all")
    assert ran.code == 0, ran.err
    records: set[int] = {case.number for case in cases()}
    assert f"{len(records)} of {len(records)} records reproduced" in ran.out


def test_the_command_wants_a_report_or_all(tmp_path: Path) -> None:
    assert run_in(tmp_path, "reproduce").code == ExitCode.USAGE
