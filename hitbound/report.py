"""The report as JSON: all that is printed on standard output. `report.schema.json` beside this file describes it."""

from __future__ import annotations

import json
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs

from hitbound import __version__
from hitbound.changes import Change
from hitbound.exit_codes import ExitCode, exit_code
from hitbound.judgement import Judgement, combined
from model.policy import Policy
from properties.trace_document import trace_to_document
from properties.verdict import Cell

SCHEMA = "hitbound-report/1"
SCHEMA_FILE = Path(__file__).with_name("report.schema.json")


@attrs.frozen
class Report:
    """What one command found out. `seed` is None where nothing was sampled, `subject` where no real engine ran.

    `configured_in` is the file that configures the gate, if one does. `changes` are what `--changed-since` found.
    """

    command: str
    policies: tuple[Policy, ...]
    judgements: tuple[Judgement, ...]
    profile: str | None = None
    seed: int | None = None
    accept_bounded: bool = False
    configured_in: str = ""
    changes: tuple[Change, ...] = ()
    subject: str | None = None

    @property
    def verdict(self) -> str:
        """The verdict on all that is required of all policies."""
        return combined(self.judgements)

    @property
    def code(self) -> ExitCode:
        """The exit code of the command."""
        return exit_code(self.judgements, self.accept_bounded)

    def missed(self, judgement: Judgement) -> bool:
        """Whether the judgement is required and falls short."""
        return judgement.required and not judgement.reached(self.accept_bounded)

    def changes_of(self, policy: Policy) -> tuple[Change, ...]:
        """What changed about one policy."""
        return tuple(change for change in self.changes if change.policy == policy.name)

    def of(self, policy: Policy) -> tuple[Judgement, ...]:
        """The judgements about one policy."""
        return tuple(judgement for judgement in self.judgements if judgement.policy == policy.name)


def to_json(report: Report) -> str:
    """The text of the report's JSON document."""
    document = {
        "schema": SCHEMA,
        "tool": _tool(report),
        "policy": ", ".join(policy.name for policy in report.policies),
        "verdict": report.verdict,
        "exit_code": report.code.value,
        "changes": [attrs.asdict(change) for change in report.changes],
        "results": [_result(judgement) for judgement in report.judgements],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _tool(report: Report) -> dict[str, Any]:
    return {
        "name": "hitbound",
        "version": __version__,
        "python": platform.python_version(),
        "solvers": {"z3": _version("z3-solver"), "cvc5": _version("cvc5")},
        "command": report.command,
        "profile": report.profile,
        "seed": report.seed,
        "subject": report.subject,
    }


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _result(judgement: Judgement) -> dict[str, Any]:
    result = judgement.result
    document = {
        "policy": judgement.policy,
        "property": result.property,
        "engine": result.engine,
        "verdict": judgement.word,
        "required": result.required,
        "needed": judgement.needed.value,
        "cell": cell_document(result.cell) if result.cell else None,
        "case": result.case.value if result.case else None,
        "scope": result.scope or None,
        "assumes": list(result.assumes),
        "solvers": list(result.solvers),
        "reason": result.reason or None,
        "signature": judgement.signature or None,
        "finding": judgement.finding or None,
        "detail": result.detail,
    }
    if result.trace is not None:
        document["trace"] = trace_to_document(result.trace)
    return document


def cell_document(cell: Cell) -> dict[str, str]:
    """A cell in the words of a trace's configuration."""
    return {
        "contract": cell.contract.name.lower(),
        "worker_order": cell.worker_order.value,
        "configuration_class": cell.configuration_class.value,
    }
