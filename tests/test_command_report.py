"""From engine results to what is printed: evidence is confirmed, the JSON keeps its schema, the headline says no more
than was shown."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import jsonschema
import pytest

from hitbound import report as reports
from hitbound.exit_codes import ExitCode, exit_code
from hitbound.gate import judge
from hitbound.judgement import Judgement
from hitbound.known_findings import KnownFinding, KnownFindingsError, Sighting, mark_known, read_known, stale
from hitbound.matrix import headline
from hitbound.report import Report, to_json
from hitbound.report_text import report_text
from model.configuration import ConfigurationClass, WorkerOrder
from model.connector import Contract
from model.policies import POLICIES
from model.trace import Trace
from properties.trace_document import SCHEMA_FILE, read_trace
from properties.verdict import ALL_CELLS, REQUIRED_CELL, Case, Cell, Result, Verdict

CORPUS = Path(__file__).with_name("corpus")
REPORT_SCHEMA = json.loads(reports.SCHEMA_FILE.read_text(encoding="utf-8"))
TRACE_SCHEMA = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
BOTH = ("z3", "cvc5")
OVERSTATED = read_trace(CORPUS / "S01.json")


def result(verdict: Verdict, cell: Cell | None = REQUIRED_CELL, **more: object) -> Result:
    base = Result(property="HIT-RESUME", engine="prove", verdict=verdict, required=cell == REQUIRED_CELL, cell=cell)
    return attrs.evolve(base, **more)  # type: ignore[arg-type]


def violation(trace: Trace | None = OVERSTATED, **more: object) -> Result:
    return result(Verdict.VIOLATED, case=Case.LOCAL, trace=trace, reason="state@64 is not there", **more)


def judged(policy: str, *results: Result, both_solvers: bool = False) -> tuple[Judgement, ...]:
    return judge(POLICIES[policy], results, both_solvers=both_solvers)


def printed(policy: str, *results: Result) -> str:
    judgements = judged(policy, *results)
    report = Report("check", (POLICIES[policy],), judgements, profile="ci", seed=0)
    return report_text(report, width=120)


def every_cell(proved: set[Cell], **more: object) -> list[Result]:
    return [
        result(Verdict.PROVED if cell in proved else Verdict.UNKNOWN, cell, solvers=BOTH, **more) for cell in ALL_CELLS
    ]


def test_a_violation_counts_only_if_its_trace_violates_again() -> None:
    assert judged("vllm-0.24", violation())[0].verdict is Verdict.VIOLATED
    for result_, policy in (
        (violation(trace=None), "vllm-0.24"),
        (violation(), "vllm-0.28"),
        (violation(property="HIT-SHRINK"), "vllm-0.24"),
        (attrs.evolve(violation(), case=Case.EXTERNAL), "vllm-0.24"),
        (violation(cell=attrs.evolve(REQUIRED_CELL, worker_order=WorkerOrder.COPY_BEFORE_LOAD)), "vllm-0.24"),
        (violation(trace=attrs.evolve(OVERSTATED, actions=OVERSTATED.actions[1:])), "vllm-0.24"),
    ):
        (judgement,) = judged(policy, result_)
        assert judgement.verdict is Verdict.CTI, result_
        assert "trace" in judgement.result.reason


@pytest.mark.parametrize("solvers", [(), ("z3",), ("cvc5",)])
def test_a_profile_that_needs_both_solvers_gets_both(solvers: tuple[str, ...]) -> None:
    proved = result(Verdict.PROVED, solvers=solvers)
    assert judged("vllm-0.28", proved)[0].verdict is Verdict.PROVED
    (lowered,) = judged("vllm-0.28", proved, both_solvers=True)
    assert lowered.verdict is Verdict.UNKNOWN
    assert "pip install 'hitbound[cvc5]'" in lowered.result.reason
    assert exit_code([lowered]) == ExitCode.NOT_REACHED
    (kept,) = judged("vllm-0.28", attrs.evolve(proved, solvers=BOTH), both_solvers=True)
    assert kept.verdict is Verdict.PROVED


def test_the_json_keeps_its_schema() -> None:
    judgements = judged(
        "vllm-0.24",
        violation(),
        *every_cell({REQUIRED_CELL}),
        result(Verdict.HOLDS_WITHIN, engine="fuzz", scope="300 runs"),
        result(Verdict.PROVED, cell=None, detail={"core": ["HIT-LAST"]}, assumes=("cache soundness",)),
    )
    document = json.loads(to_json(Report("check", (POLICIES["vllm-0.24"],), judgements, profile="ci", seed=7)))
    jsonschema.Draft202012Validator(REPORT_SCHEMA).validate(document)
    assert document["policy"] == "vllm-0.24"
    assert document["verdict"] == "VIOLATED"
    (violated,) = (found for found in document["results"] if found["verdict"] == "VIOLATED")
    jsonschema.Draft202012Validator(TRACE_SCHEMA).validate(violated["trace"])
    assert violated["trace"]["actions"]


def test_the_schema_wants_a_trace_with_every_violation() -> None:
    document = json.loads(to_json(Report("check", (POLICIES["vllm-0.24"],), judged("vllm-0.24", violation()))))
    del document["results"][0]["trace"]
    assert not jsonschema.Draft202012Validator(REPORT_SCHEMA).is_valid(document)


def test_two_policies_are_one_document_whose_results_name_their_own() -> None:
    judgements = judged("vllm-0.28", result(Verdict.PROVED)) + judged("reference", result(Verdict.PROVED))
    document = json.loads(to_json(Report("check", (POLICIES["vllm-0.28"], POLICIES["reference"]), judgements)))
    assert document["policy"] == "vllm-0.28, reference"
    assert [found["policy"] for found in document["results"]] == ["vllm-0.28", "reference"]


def cells(order: WorkerOrder, classes: set[ConfigurationClass], least: Contract) -> set[Cell]:
    return {Cell(contract, order, kind) for contract in Contract if contract >= least for kind in classes}


LOAD_FIRST = WorkerOrder.LOAD_BEFORE_COPY
ONE, SECOND, ONE_TAILS, SECOND_TAILS = ConfigurationClass


@pytest.mark.parametrize(
    ("proved", "said"),
    [
        (
            cells(LOAD_FIRST, {ONE}, Contract.BACKED),
            "honest to backed, load before copy, one attention spec, no partial tails; 21 of 24",
        ),
        (
            cells(LOAD_FIRST, {ONE, SECOND}, Contract.BACKED),
            "honest to backed, load before copy, one attention spec or more, no partial tails; 18 of 24",
        ),
        (
            cells(LOAD_FIRST, {ONE, ONE_TAILS}, Contract.BACKED),
            "honest to backed, load before copy, one attention spec, with or without partial tails; 18 of 24",
        ),
        (
            cells(LOAD_FIRST, set(ConfigurationClass), Contract.BACKED),
            "honest to backed, load before copy, one attention spec or more, with or without partial tails; 12 of 24",
        ),
        (
            set(ALL_CELLS),
            "honest to backed, either worker order, one attention spec or more, with or without partial tails",
        ),
        (
            cells(LOAD_FIRST, {ONE}, Contract.BACKED) | cells(LOAD_FIRST, {SECOND}, Contract.FULL),
            "honest to backed, load before copy, one attention spec, no partial tails; 20 of 24",
        ),
    ],
)
def test_the_headline_says_what_was_shown(proved: set[Cell], said: str) -> None:
    judgements = judged("vllm-0.28", *every_cell(proved))
    assert f"proved for connectors {said}" in headline(judgements)


def test_the_headline_names_what_is_assumed() -> None:
    judgements = judged("vllm-0.28", *every_cell({REQUIRED_CELL}, assumes=("cache soundness",)))
    assert ", one attention spec, no partial tails, assuming cache soundness" in headline(judgements)


def test_the_headline_never_says_proved_when_the_required_cell_is_not() -> None:
    for proved in (set(), set(ALL_CELLS) - {REQUIRED_CELL}):
        assert "proved for" not in headline(judged("vllm-0.28", *every_cell(proved)))


def test_the_headline_of_a_bounded_result_outside_the_matrix_is_not_proved() -> None:
    bounded = result(Verdict.HOLDS_WITHIN, cell=None, property="CAP-MEET", required=True)
    said = headline(judged("vllm-0.28", *every_cell(set(ALL_CELLS)), bounded))
    assert said == "HOLDS_WITHIN: CAP-MEET"


def test_the_headline_of_a_known_violation_names_it(tmp_path: Path) -> None:
    judgements = judged("vllm-0.24", violation())
    marked = mark_known(judgements, read_known(written(tmp_path, finding_for(judgements[0]))))
    assert headline(marked).startswith("VIOLATED(known): HIT-RESUME (E = 0)")


def test_the_text_shows_matrix_reason_trace_and_place() -> None:
    text = printed("vllm-0.24", violation(), *every_cell(set(ALL_CELLS) - {REQUIRED_CELL}))
    assert "vllm-0.24: VIOLATED: HIT-RESUME (E = 0)" in text
    assert "VIOLATED (required)" in text
    assert (
        "backed; load before copy, one attention spec: HIT-RESUME (E = 0): state@64 is not there (as trace 1)" in text
    )
    assert "admits replay: L = 64, E = 0, R = 64 of N = 96 tokens" in text
    assert "needs state@64" in text
    assert "model/policies/vllm.py:" in text
    assert "in vLLM KVCacheManager.get_computed_blocks_for_connector" in text
    assert "exit code 1: a required property is violated" in text


def written(folder: Path, *findings: dict[str, object], schema: str = "hitbound-known/1") -> Path:
    path = folder / "known.json"
    path.write_text(json.dumps({"schema": schema, "findings": findings}), encoding="utf-8")
    return path


def finding_for(judgement: Judgement) -> dict[str, object]:
    """As a user writes it: copied from the JSON report."""
    document = json.loads(to_json(Report("check", (POLICIES[judgement.policy],), (judgement,))))["results"][0]
    return {key: document[key] for key in ("policy", "property", "cell", "signature")} | {"why": "docs/findings.md"}


def test_a_known_finding_is_accepted_and_shown(tmp_path: Path) -> None:
    judgements = judged("vllm-0.24", violation())
    findings = read_known(written(tmp_path, finding_for(judgements[0])))
    marked = mark_known(judgements, findings)
    assert exit_code(marked) == ExitCode.REACHED
    assert not stale(findings, marked)
    document = json.loads(to_json(Report("check", (POLICIES["vllm-0.24"],), marked)))
    assert document["verdict"] == document["results"][0]["verdict"] == "VIOLATED(known)"


@pytest.mark.parametrize("key", ["property", "cell", "signature"])
def test_a_known_finding_accepts_nothing_else(tmp_path: Path, key: str) -> None:
    judgements = judged("vllm-0.24", violation())
    other = {"property": "HIT-COVER", "cell": None, "signature": "E > 0"}
    findings = read_known(written(tmp_path, {**finding_for(judgements[0]), key: other[key]}))
    marked = mark_known(judgements, findings)
    assert exit_code(marked) == ExitCode.VIOLATED
    assert stale(findings, marked) == findings


def test_a_finding_about_a_policy_that_was_not_checked_is_not_stale() -> None:
    finding = KnownFinding("vllm-0.27", "docs", (Sighting("vllm-0.27", "HIT-RESUME", "E > 0", REQUIRED_CELL),))
    assert not stale([finding], judged("vllm-0.24", violation()))


@pytest.mark.parametrize(
    ("findings", "schema", "said"),
    [
        ([{"policy": "p"}], "hitbound-known/1", 'an entry for p needs "finding", or "property", "signature" and "why"'),
        ([], "hitbound-known/2", "$.schema"),
        ([{"policy": 3}], "hitbound-known/1", "$.findings[0].policy: expected a string"),
    ],
)
def test_a_faulty_known_file_is_refused(
    tmp_path: Path, findings: list[dict[str, object]], schema: str, said: str
) -> None:
    path = written(tmp_path, *findings, schema=schema)
    with pytest.raises(KnownFindingsError) as refused:
        read_known(path)
    assert said in str(refused.value)
    assert str(path) in str(refused.value)
