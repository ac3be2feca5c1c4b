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
from tests.command_line import CHECKOUT
from tests.installed import REQUIRED, installed_subject

PREEMPTED_CHUNK = CHECKOUT / "docs" / "findings" / "hash_of_a_preempted_chunk_test.py"
NOTED = "        self.scheduler.kv_cache_manager.allocate_slots = allocate_and_note\n"
WITHDRAWN = """
        preempt_request = self.scheduler._preempt_request

        def withdraw_and_preempt(request, *arguments, **named):
            if request.request_id in self.allocated:
                for _, table in self.tables(request.request_id):
                    unwritten = set(table[request.num_computed_tokens // BLOCK :]) - {0}
                    self.scheduler.kv_cache_manager.evict_blocks(unwritten)
            preempt_request(request, *arguments, **named)

        self.scheduler._preempt_request = withdraw_and_preempt
"""
"""The repair that the finding proposes: with it the test has to pass."""

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
    preempted = PREEMPTED_CHUNK.read_text(encoding="utf-8")
    assert preempted.count(NOTED) == 1
    by_hand = {"as it is": preempted, "repaired": preempted.replace(NOTED, NOTED + WITHDRAWN)}
    raised = run_exported(installed_subject(release), tests | findings | by_hand)
    wrong = ("chunk: low hits 112, 96", "drafts: later hits 32, 31", "state: later hits 128, 0")
    assert all(hit in raised["as it is"] for hit in wrong)
    assert not raised["repaired"]
    assert {words: not raised[words] for words in right} == right
    assert all(error.startswith("AssertionError") for words, error in raised.items() if words in right and error)
    measured = json.loads(DATA.read_text(encoding="utf-8"))[release]["exported"]
    assert {name: raised[name] for name in findings} == measured
