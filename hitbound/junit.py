"""The report as JUnit XML: a test suite per policy, a test case per verdict.

A violation is a failure. What is unknown, vacuous, not inductive or too weak is an error. What is not required, or a
known violation, is skipped, with its verdict: only a required verdict that was reached passes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from hitbound.judgement import Judgement
from hitbound.matrix import column_words, named
from hitbound.report import Report
from hitbound.trace_text import DRAWN_WIDTH, trace_text
from model.policy import Policy
from properties.verdict import Verdict

NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML document may contain."""


def to_junit(report: Report) -> str:
    """The text of the XML document."""
    suites = Element("testsuites", name="hitbound")
    for policy in report.policies:
        _suite(suites, report, policy, report.of(policy))
    if not any(judgement.required for judgement in report.judgements):
        suite = SubElement(suites, "testsuite", name="hitbound")
        case = SubElement(suite, "testcase", classname="gate", name="something is required")
        _complain(case, "error", Verdict.VACUOUS.value, "nothing was required, so nothing was shown")
        _count(suite)
    _count(suites)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _suite(suites: Element, report: Report, policy: Policy, judgements: Sequence[Judgement]) -> None:
    suite = SubElement(suites, "testsuite", name=_text(policy.name))
    for judgement in judgements:
        case = SubElement(
            suite, "testcase", classname=_text(f"{policy.name}.{judgement.result.engine}"), name=_text(_name(judgement))
        )
        told = f"{judgement.word}: {judgement.reason or judgement.result.scope or 'no reason given'}"
        if judgement.known:
            _complain(case, "skipped", judgement.word, f"known violation: {told}")
        elif not judgement.required:
            _complain(case, "skipped", judgement.word, f"not required: {told}")
        elif report.missed(judgement):
            kind = "failure" if judgement.verdict is Verdict.VIOLATED else "error"
            _complain(case, kind, judgement.word, told, _drawn(policy, judgement))
    _count(suite)


def _name(judgement: Judgement) -> str:
    cell = judgement.result.cell
    return named(judgement) + (f" [{cell.contract.name.lower()}; {column_words(cell)}]" if cell else "")


def _complain(case: Element, tag: str, kind: str, message: str, text: str = "") -> None:
    complaint = SubElement(case, tag, message=_text(message))
    if tag != "skipped":
        complaint.set("type", kind)
    complaint.text = _text(text) or None


def _drawn(policy: Policy, judgement: Judgement) -> str:
    return "\n".join(trace_text(judgement, policy, DRAWN_WIDTH))


def _count(element: Element) -> None:
    element.set("tests", str(len(element.findall(".//testcase"))))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(attribute, str(len(element.findall(f".//{tag}"))))


def _text(text: str) -> str:
    return NOT_XML.sub("\ufffd", text)
