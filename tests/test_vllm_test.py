"""A trace as a test for vLLM's own repository: complete, importing nothing of ours, and right where vLLM is right."""

from __future__ import annotations

import ast
import json

import pytest

from benchmarks.release_matrix import DATA
from hitbound.corpus import corpus, finding_traces
from hitbound.export_command import exported
from model.policies import POLICIES
from model.trace import Trace
from properties.replay import replay
from subjects.exported import run_exported
from subjects.vllm_test import vllm_test
from tests.installed import REQUIRED, installed_subject

OURS = {"hitbound", "model", "properties", "solver", "subjects"}


def text_of(trace: Trace) -> str:
    return vllm_test(trace, replay(trace, POLICIES["reference"]).admissions)


def trace_titled(words: str) -> Trace:
    return next(trace for trace in corpus() if words in trace.title)


@pytest.mark.parametrize("words", ["attention hit 64, Mamba hit 16, a connector without", "as S2, a composite"])
def test_it_imports_nothing_of_ours_and_says_what_it_expects(words: str) -> None:
    text = text_of(trace_titled(words))
    tree = ast.parse(text)
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    assert not imported & OURS
    assert "assert engine.resumed['replay'] == (16, 16)  # (L, E)" in text


@pytest.mark.subject
@pytest.mark.slow
@pytest.mark.parametrize("release", REQUIRED)
def test_it_passes_where_vllm_is_right_and_fails_where_it_is_not(release: str) -> None:
    # 0.27 is right with E = 0, and wrong where a connector that claims nothing gets a divergent lookup.
    right = {
        "attention hit 64, Mamba hit 16, a connector without": release != "0.27.1",
        "a fork at 48 of a prompt that ran in one chunk": True,
    }
    tests = {words: exported(trace_titled(words), "vllm-test", None) for words in right}
    findings = {name: exported(trace, "vllm-test", None) for name, trace in finding_traces().items()}
    raised = run_exported(installed_subject(release), tests | findings)
    assert {words: not raised[words] for words in right} == right
    assert all(error.startswith("AssertionError") for words, error in raised.items() if words in right and error)
    measured = json.loads(DATA.read_text(encoding="utf-8"))[release]["exported"]
    assert {name: raised[name] for name in findings} == measured
