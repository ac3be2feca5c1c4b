"""The catalogue's counterexamples violate what they are about without the guard, and nothing with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hitbound.catalogue_page import as_html, as_markdown, entries
from hitbound.corpus import counterexample_traces
from hitbound.counterexamples import counterexamples
from hitbound.draw_command import drawn
from hitbound.expectation import unmet
from hitbound.judgement import Judgement
from hitbound.last_run import read_last_run
from hitbound.report import Report, to_json
from hitbound.source_lines import DECIDED_BY
from model.policies import POLICIES, policy_named
from properties.catalogue import INVARIANTS
from properties.replay import replay
from properties.trace_document import read_trace
from properties.verdict import Result, Verdict
from tests.command_line import CHECKOUT, CORPUS, Hitbound

TRACES = counterexample_traces()
IN_THE_CONFIGURATION = {"LOAD-ORDER", "STATE-LABEL"}
"""Their guard is no part of a policy: the worker's order, and the connector's contract."""


@pytest.mark.parametrize("property", TRACES)
def test_without_the_guard_the_invariant_falls_and_with_it_nothing_does(property: str) -> None:
    trace = TRACES[property]
    without, *others = trace.expectations
    assert property in without.violates
    for expected in trace.expectations:
        assert unmet(expected, replay(trace, policy_named(expected.policy))) == []
    assert [(each.policy, each.violates) for each in others] == (
        [] if property in IN_THE_CONFIGURATION else [("vllm-0.28", ())]
    )


@pytest.mark.parametrize("property", counterexamples())
def test_a_counterexample_says_what_is_violated(property: str) -> None:
    example = counterexamples()[property]
    assert example.message
    assert example.guard
    assert property in INVARIANTS


def test_what_a_policy_decides_has_a_counterexample() -> None:
    assert set(DECIDED_BY) <= set(counterexamples())


def test_the_pages_tell_of_every_invariant() -> None:
    markdown, html = as_markdown(), as_html()
    for section in entries().values():
        for entry in section:
            assert f"### {entry.id}" in markdown
            assert f'<article id="{entry.id}"' in html
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_the_command_prints_the_page(hitbound: Hitbound, form: str) -> None:
    ran = hitbound("invariants", "--format", form)
    assert ran.code == 0, ran.err
    assert "the whole request may be a hit" in ran.out


@pytest.mark.slow  # not while several changes are under way: whoever puts them together writes the page anew
def test_the_pages_in_docs_are_as_the_code_says() -> None:
    written = (CHECKOUT / "docs" / "invariants.md").read_text(encoding="utf-8")
    assert written == as_markdown(), "docs/invariants.md is stale: run `make pages` and commit it"
    figure = (CHECKOUT / "docs" / "figures" / "S02.svg").read_text(encoding="utf-8")
    image = drawn(read_trace(CORPUS / "S02.json"), POLICIES["vllm-0.24"])
    assert figure == image + "\n", "docs/figures/S02.svg is stale: run `make pages` and commit it"


def test_a_page_says_what_the_last_run_said_and_never_better(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    judged = tuple(
        Judgement("p", Result(property="HIT-LAST", engine=engine, verdict=verdict, required=required))
        for engine, verdict, required in (
            ("prove", Verdict.PROVED, True),
            ("prove", Verdict.UNKNOWN, True),
            ("prove", Verdict.VIOLATED, False),
            ("fuzz", Verdict.HOLDS_WITHIN, True),
        )
    )
    report.write_text(to_json(Report("gate", (), judged)), encoding="utf-8")
    last = read_last_run(report)
    assert last.about("HIT-LAST") == "p: UNKNOWN (prove); p: HOLDS_WITHIN (fuzz)"
    assert last.about("HIT-COVER") == ""
    assert "- Last run: p: UNKNOWN (prove); p: HOLDS_WITHIN (fuzz)" in as_markdown(last)
    assert "p: UNKNOWN (prove)" in as_html(last)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "html", "--report", "none.json"], "none.json: cannot be read"),
        (["--format", "html", "--report", str(CORPUS / "S01.json")], 'expected "hitbound-report/1"'),
        (["--report", "none.json"], "use --format markdown"),
    ],
)
def test_what_is_no_report_is_refused(hitbound: Hitbound, arguments: list[str], said: str) -> None:
    ran = hitbound("invariants", *arguments)
    assert ran.code == 2
    assert said in ran.err
