"""What a search writes: graphs, traces for other tools, and what the command makes of its options."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hitbound.command import command
from hitbound.explore_command import ExploreUsage, explore_run
from hitbound.progress import Say
from model.policies import POLICIES
from model.policy import Policy
from properties.trace_document import write_trace
from properties.verdict import Result, Verdict
from solver.explore import explore, searched
from solver.itf import VARIABLES, itf
from solver.scopes import SCOPES
from solver.state_graph import GraphTooLarge, dot

V024, V028 = POLICIES["vllm-0.24"], POLICIES["vllm-0.28"]


def test_the_graph_has_every_state_and_every_transition() -> None:
    search = searched(V028, SCOPES["empty-composite"])
    text = dot(search)
    assert text.startswith('digraph "empty-composite" {')
    assert text.count("shape=plaintext") == 0
    assert text.count(" -> ") == search.reached.transitions
    assert text.count("\\ncached: ") == len(search.reached.codes)
    assert "a running 1/2" in text


def test_a_transition_into_something_wrong_is_red_and_leads_nowhere() -> None:
    text = dot(searched(V024, SCOPES["asynchronous-load"]))
    assert "HIT-RESUME" in text
    assert "color=red" in text
    assert "not followed" in text


def test_a_graph_that_nobody_can_read_is_refused() -> None:
    with pytest.raises(GraphTooLarge, match="use a smaller scope"):
        dot(searched(V028, SCOPES["reference"]))


def test_a_trace_in_itf_has_a_state_before_and_after_each_action() -> None:
    trace = next(r.trace for r in explore(V024, SCOPES["asynchronous-load"]) if r.trace is not None)
    document = json.loads(itf(trace, V024))
    assert document["#meta"]["format"] == "ITF"
    assert document["vars"] == list(VARIABLES)
    assert [state["#meta"]["index"] for state in document["states"]] == list(range(len(trace.actions) + 1))
    for state in document["states"]:
        assert set(VARIABLES) <= state.keys()
    assert json.loads(document["states"][1]["action"])["do"] == "arrive"
    assert len(document["states"][0]["blocks"]["#map"]) == SCOPES["asynchronous-load"].configuration.pool_blocks - 1


def run(*scopes: str, **options: Any) -> Callable[[Policy, Say], tuple[Result, ...]]:
    defaults = {
        "max_states": 5_000,
        "max_memory": 100,
        "no_symmetry": False,
        "checkpoint": None,
        "dot_file": None,
        "itf_directory": None,
    }
    return explore_run(scopes, **{**defaults, **options})


def test_the_command_searches_named_scopes_and_traces_and_writes_what_is_asked(tmp_path: Path) -> None:
    results = run("asynchronous-load", itf_directory=tmp_path / "itf")(V024, lambda _: None)
    trace = next(result.trace for result in results if result.trace is not None)
    assert len(list((tmp_path / "itf").iterdir())) == sum(result.trace is not None for result in results)
    write_trace(trace, tmp_path / "trace.json")
    again = run(str(tmp_path / "trace.json"), dot_file=tmp_path / "graph.dot")(V024, lambda _: None)
    assert any(result.verdict is Verdict.VIOLATED for result in again)
    assert (tmp_path / "graph.dot").read_text(encoding="utf-8").startswith("digraph")


@pytest.mark.parametrize(
    ("scope", "policy", "code"),
    [("divergent", "vllm-0.28", 0), ("divergent", "vllm-0.24", 1), ("copy-before-load", "vllm-0.28", 1)],
)
def test_the_exit_code_is_that_of_what_is_required(scope: str, policy: str, code: int) -> None:
    found = CliRunner().invoke(command, ["explore", "--scope", scope, "--policy", policy], standalone_mode=False)
    assert found.return_value == code, found.output
    assert f"exit code {code}" in found.output


def test_the_command_says_what_is_wrong_with_its_options(tmp_path: Path) -> None:
    with pytest.raises(ExploreUsage, match="no such scope or file"):
        run("nowhere")
    with pytest.raises(ExploreUsage, match="for one scope"):
        run("local", "divergent", checkpoint=tmp_path / "checkpoint")
