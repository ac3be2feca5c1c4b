"""The report as SARIF 2.1.0: one result per required verdict that was not reached, or that is a known violation.

What was reached is not listed: readers of SARIF take every result for a complaint. Where nothing was required at all,
that is the result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hitbound import __version__
from hitbound.exit_codes import PRECEDENCE, ExitCode
from hitbound.judgement import Judgement
from hitbound.matrix import column_words, named
from hitbound.report import Report
from hitbound.source_lines import annotated_place
from hitbound.trace_text import DRAWN_WIDTH, trace_text
from model.policy import Policy
from properties.catalogue import INVARIANTS

VERSION = "2.1.0"
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def to_sarif(report: Report) -> str:
    """The text of the SARIF document."""
    results = list(_results(report))
    run = {
        "tool": {"driver": {"name": "hitbound", "version": __version__, "rules": list(_rules(results))}},
        "invocations": [
            {
                # What is unknown or vacuous was not examined: then the run as a whole did not succeed.
                "executionSuccessful": report.code in (ExitCode.REACHED, ExitCode.VIOLATED),
                "exitCode": report.code.value,
                "exitCodeDescription": dict(PRECEDENCE)[report.code],
            }
        ],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return json.dumps({"$schema": SCHEMA, "version": VERSION, "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _results(report: Report) -> Iterator[dict[str, Any]]:
    for policy in report.policies:
        for judgement in report.of(policy):
            if report.missed(judgement) or judgement.known:
                yield _result(report, policy, judgement)
    if not any(judgement.required for judgement in report.judgements):
        message = "VACUOUS: nothing was required, so nothing was shown"
        yield {"ruleId": "NOTHING-REQUIRED", "level": "error", "message": {"text": message}}


def _result(report: Report, policy: Policy, judgement: Judgement) -> dict[str, Any]:
    result = judgement.result
    where = f" ({result.cell.contract.name.lower()}; {column_words(result.cell)})" if result.cell else ""
    message = f"{judgement.word}: {policy.name}: {named(judgement)}{where}: {judgement.reason or judgement.word}"
    fingerprint = [policy.name, result.property, where, judgement.signature]
    document: dict[str, Any] = {
        "ruleId": result.property,
        "kind": "fail",
        "level": "error",
        "message": {"text": message},
        "partialFingerprints": {"hitbound/v1": "; ".join(fingerprint)},
        "properties": {"verdict": judgement.word, "engine": result.engine, "policy": policy.name},
    }
    if judgement.finding:
        document["properties"]["finding"] = judgement.finding
    if result.trace is not None:
        drawn = "\n".join(trace_text(judgement, policy, DRAWN_WIDTH))
        document["message"]["markdown"] = f"{message}\n\n```text\n{drawn}\n```"
    place = annotated_place(policy, result.property, report.configured_in)
    if place:
        location = {"artifactLocation": {"uri": place.file}, "region": {"startLine": place.line}}
        document["locations"] = [{"physicalLocation": location}]
    if judgement.known:
        document["suppressions"] = [{"kind": "external", "justification": "named in the file of known findings"}]
    return document


def _rules(results: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for name in dict.fromkeys(result["ruleId"] for result in results):
        rule: dict[str, Any] = {"id": name}
        if name in INVARIANTS:
            rule["shortDescription"] = {"text": INVARIANTS[name].statement}
            rule["fullDescription"] = {"text": INVARIANTS[name].reason}
        yield rule
