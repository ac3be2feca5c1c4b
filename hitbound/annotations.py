"""The report as GitHub workflow commands: an annotation per property that falls short, where the policy decides it."""

from __future__ import annotations

from collections.abc import Iterator

from hitbound.judgement import Judgement
from hitbound.matrix import headline, named
from hitbound.report import Report
from hitbound.source_lines import annotated_place
from hitbound.trace_text import DRAWN_WIDTH, trace_text
from model.policy import Policy
from properties.verdict import Verdict


def to_annotations(report: Report) -> str:
    """A plain line per policy, and one per annotation. Without an error command, all that is required was reached."""
    lines = [line for policy in report.policies for line in _policy(report, policy)]
    if not any(judgement.required for judgement in report.judgements):
        lines.append(_command("error", "hitbound: VACUOUS", "nothing was required, so nothing was shown"))
    return "\n".join(lines) + "\n"


def _policy(report: Report, policy: Policy) -> Iterator[str]:
    yield f"{policy.name}: {headline(report.of(policy))}".replace("::", ": ")
    told: set[tuple[str, str]] = set()
    for judgement in report.of(policy):
        kind = (judgement.result.property, judgement.word)
        if kind in told or not (report.missed(judgement) or judgement.known):
            continue
        told.add(kind)
        yield _annotation(report, policy, judgement)


def _annotation(report: Report, policy: Policy, judgement: Judgement) -> str:
    result = judgement.result
    message = f"{policy.name}: {judgement.reason or judgement.word}"
    if judgement.verdict is Verdict.VIOLATED and result.trace is not None and not judgement.known:
        message += "\n" + "\n".join(trace_text(judgement, policy, DRAWN_WIDTH))
    title = f"hitbound: {judgement.word} {named(judgement)}"
    place = annotated_place(policy, result.property, report.configured_in)
    where = {"file": place.file, "line": str(place.line)} if place else {}
    return _command("notice" if judgement.known else "error", title, message, **where)


def _command(level: str, title: str, message: str, **where: str) -> str:
    settings = ",".join(f"{key}={_escaped(value, property=True)}" for key, value in {**where, "title": title}.items())
    return f"::{level} {settings}::{_escaped(message)}"


def _escaped(text: str, *, property: bool = False) -> str:
    """As the toolkit of the workflow runner escapes the data, and the properties, of a command."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if property else text
