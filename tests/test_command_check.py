"""`hitbound check` end to end, as CI runs it: shipped policies, users' policies right and wrong, the exit codes."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from hitbound import report
from hitbound.replay_text import replay_text
from properties.trace_document import read_trace
from tests.command_line import CHECKOUT, Hitbound

pytestmark = pytest.mark.slow

POLICIES = CHECKOUT / "tests" / "policies"
SCHEMA = json.loads(report.SCHEMA_FILE.read_text(encoding="utf-8"))
LONGEST_TRACE = 8
"""Most actions of a trace that a reader can take in."""


def reported(hitbound: Hitbound, command: str, *arguments: str, code: int) -> Any:
    """The JSON report of a command that must end with `code`."""
    ran = hitbound(command, "--format", "json", *arguments)
    assert ran.code == code, ran.err or ran.out[-2000:]
    jsonschema.Draft202012Validator(SCHEMA).validate(ran.json)
    return ran.json


def violations(document: Any, **wanted: object) -> list[Any]:
    return [
        found
        for found in document["results"]
        if found["verdict"] == "VIOLATED" and all(found[key] == value for key, value in wanted.items())
    ]


def test_the_default_and_the_reference_are_proved_by_both_solvers(hitbound: Hitbound) -> None:
    document = reported(hitbound, "prove", code=0)
    assert document["policy"] == "vllm-0.33, reference"
    assert document["verdict"] == "PROVED"
    required = [found for found in document["results"] if found["required"]]
    assert {found["policy"] for found in required} == {"vllm-0.33", "reference"}
    for found in required:
        if found["needed"] == "PROVED":
            assert (found["verdict"], found["solvers"]) == ("PROVED", ["z3", "cvc5"]), found
    assert not [found for found in document["results"] if found["verdict"] in {"UNKNOWN", "VACUOUS", "CTI"}]
    cells = [found for found in document["results"] if found["policy"] == "reference" and found["cell"]]
    assert {found["verdict"] for found in cells if found["engine"] == "prove"} == {"PROVED"}


@pytest.mark.parametrize(
    ("engine", "policy", "cases"),
    [
        ("prove", "vllm-0.24", {"E = 0", "E > 0"}),
        ("prove", "vllm-0.27", {"E > 0"}),
        pytest.param("fuzz", "vllm-0.24", {"E = 0", "E > 0"}, marks=pytest.mark.nightly),
        ("fuzz", "vllm-0.27", {"E > 0"}),
    ],
)
def test_the_overstating_eras_are_red_with_short_traces(
    hitbound: Hitbound, policy: str, cases: set[str], engine: str
) -> None:
    document = reported(hitbound, engine, "--policy", policy, code=1)
    found = violations(document, engine=engine, property="HIT-RESUME", required=True)
    assert {violation["case"] for violation in found} == cases
    assert all(len(violation["trace"]["actions"]) <= LONGEST_TRACE for violation in found)


@pytest.mark.parametrize(
    ("file", "name", "property"),
    [
        ("any_claims.py", "AnyClaims", "CAP-MEET"),
        ("empty_claims.py", "EmptyClaims", "CAP-MEET"),
        ("no_fallback.py", "NoFallback", "HIT-RESUME"),
        ("cap_n.py", "CapN", "HIT-LAST"),
        ("trimmed.py", "Trimmed", "HIT-MEMBER"),
        ("raises.py", "Raises", "POLICY-TOTAL"),
    ],
)
def test_a_faulty_policy_is_1_with_a_trace(hitbound: Hitbound, file: str, name: str, property: str) -> None:
    document = reported(hitbound, "prove", "--policy", f"{POLICIES / file}:{name}", code=1)
    assert violations(document, property=property, required=True)


def test_the_default_policy_in_other_words_is_0(hitbound: Hitbound) -> None:
    asked = ["--policy", f"{POLICIES / 'other_words.py'}:OtherWords", "--profile", "quick"]
    document = reported(hitbound, "check", *asked, code=0)
    assert document["verdict"] == "PROVED"


def test_a_list_shaped_policy_is_3_unless_bounded_is_accepted(hitbound: Hitbound) -> None:
    asked = ["--policy", f"{POLICIES / 'list_shaped.py'}:ListShaped"]
    document = reported(hitbound, "check", *asked, "--profile", "quick", code=3)
    assert document["verdict"] == "HOLDS_WITHIN"
    bounded = [found for found in document["results"] if found["engine"] == "prove" and found["scope"]]
    assert all("as a fold" in found["reason"] for found in bounded)
    reported(hitbound, "prove", *asked, "--accept-bounded", code=0)


@pytest.mark.parametrize("name", ["LoopsAlways", "LoopsOnSymbols"])
def test_a_policy_without_end_is_3(hitbound: Hitbound, name: str) -> None:
    asked = ["--policy", f"{POLICIES / 'loops.py'}:{name}", "--profile", "quick"]
    document = reported(hitbound, "check", *asked, code=3)
    assert document["verdict"] == "UNKNOWN"


@pytest.mark.parametrize(
    ("file", "name", "line"),
    [
        ("broken_import.py", "Any", 3),
        ("broken_syntax.py", "Any", 1),
        ("missing_part.py", "MissingPart", 6),
        ("wrong_type.py", "FloatCap", 8),
        ("wrong_type.py", "LocalWithoutFlag", 12),
        ("wrong_type.py", "LookupByName", 17),
        ("not_symbolic.py", "AsksForInt", 8),
        ("not_symbolic.py", "IsTrue", 17),
        ("not_symbolic.py", "CountsUp", 22),
    ],
)
def test_a_policy_that_cannot_be_checked_is_2_with_its_line(
    hitbound: Hitbound, file: str, name: str, line: int
) -> None:
    ran = hitbound("check", "--policy", f"{POLICIES / file}:{name}", "--profile", "quick", "--format", "json")
    assert ran.code == 2, ran.err
    assert ran.out == ""
    assert f"{file}:{line}" in ran.err


def test_each_red_cell_has_a_line_and_each_violation_a_trace(hitbound: Hitbound) -> None:
    text = hitbound("prove").out
    assert "vllm-0.33: proved for connectors honest to backed, load before copy, one attention spec" in text
    assert "reference: proved for connectors honest to backed, either worker order, one attention spec or more" in text
    assert "VIOLATED  backed, endpoint; load before copy, a second attention spec: HIT-COVER" in text
    needed = next(line for line in text.splitlines() if "the proof needs of every connector" in line)
    assert "a claim promises the endpoint" in needed
    assert "trace 1: " in text


def test_traces_are_written_and_replay(hitbound: Hitbound, tmp_path: Any) -> None:
    hitbound("prove", "--policy", "vllm-0.24", "--traces", "found")
    written = sorted((tmp_path / "found").glob("*.json"))
    assert written
    for path in written:
        met, text = replay_text(read_trace(path), None, 100)
        assert met, text


def test_known_findings_are_accepted_and_stale_ones_are_not(hitbound: Hitbound, tmp_path: Any) -> None:
    asked = ["--policy", "vllm-0.27", "--profile", "quick"]
    findings = [
        {key: found[key] for key in ("policy", "property", "cell", "signature")} | {"why": "the era's own fault"}
        for found in violations(reported(hitbound, "check", *asked, code=1))
    ]
    known = tmp_path / "known.json"
    known.write_text(json.dumps({"schema": "hitbound-known/1", "findings": findings}), encoding="utf-8")
    document = reported(hitbound, "check", *asked, "--known", "known.json", code=0)
    assert document["verdict"] == "VIOLATED(known)"
    gone = {**findings[0], "property": "HIT-SHRINK"}
    known.write_text(json.dumps({"schema": "hitbound-known/1", "findings": [*findings, gone]}), encoding="utf-8")
    ran = hitbound("check", *asked, "--known", "known.json")
    assert ran.code == 2
    assert "no longer occur" in ran.err
    known.write_text(json.dumps({"schema": "hitbound-known/1", "findings": [gone]}), encoding="utf-8")
    assert hitbound("check", *asked, "--known", "known.json").code == 1
