"""The catalogue's counterexamples violate what they are about without the guard, and nothing with it."""

from __future__ import annotations

import pytest

from hitbound.catalogue_page import as_html, as_markdown, entries
from hitbound.corpus import counterexample_traces
from hitbound.counterexamples import counterexamples
from hitbound.expectation import unmet
from hitbound.source_lines import DECIDED_BY
from model.policies import DEFAULT_POLICY, policy_named
from properties.catalogue import INVARIANTS
from properties.replay import replay
from tests.command_line import CHECKOUT, Hitbound

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
        [] if property in IN_THE_CONFIGURATION else [(DEFAULT_POLICY, ())]
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
def test_the_page_in_docs_is_as_the_catalogue_says() -> None:
    written = (CHECKOUT / "docs" / "invariants.md").read_text(encoding="utf-8")
    assert written == as_markdown(), "docs/invariants.md is stale: run `make pages` and commit it"
