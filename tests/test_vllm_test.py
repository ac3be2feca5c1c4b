"""A trace as a test for vLLM's own repository: complete, importing nothing of ours, and right where vLLM is right."""

from __future__ import annotations

import ast
import os
import subprocess
from pathlib import Path

import pytest

from hitbound.corpus import corpus
from model.policies import POLICIES
from model.trace import Trace
from properties.replay import replay
from subjects.process import subject_from_environment
from subjects.vllm_test import vllm_test

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
@pytest.mark.parametrize(
    "words", ["attention hit 64, Mamba hit 16, a connector without", "a fork at 48 of a prompt that ran in one chunk"]
)
def test_it_passes_where_vllm_is_right_and_fails_where_it_is_not(words: str, tmp_path: Path) -> None:
    subject = subject_from_environment()
    if subject is None:
        pytest.skip("no subject")
    (tmp_path / "exported.py").write_text(text_of(trace_titled(words)), encoding="utf-8")
    run = f"""
import pathlib, runpy
names = runpy.run_path({str(tmp_path / "exported.py")!r})
test = next(value for name, value in names.items() if name.startswith("test_"))
directory = pathlib.Path({str(tmp_path)!r}, "model")
directory.mkdir()
test(directory)
"""
    done = subprocess.run(
        [subject.interpreter, "-c", run], env={**os.environ, **subject.environment()}, capture_output=True, text=True
    )
    release = subject.tree.name.removeprefix("vllm-")
    right = release >= "0.28" or (release >= "0.27" and "E = 0" in words)
    assert ("AssertionError" in done.stderr) is not right, done.stderr[-2000:]
    assert (done.returncode == 0) is right
