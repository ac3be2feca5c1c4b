"""`hitbound export`: the regression test fails while the fault is there, and the corpus trace fails the gate."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hitbound.corpus_check import check_folder
from hitbound.export_command import exported
from model.policies import POLICIES
from properties.trace_document import load_trace, read_trace
from properties.verdict import Verdict
from tests.command_line import CHECKOUT, CORPUS, Hitbound

TRACE = read_trace(CORPUS / "S02.json")


def ran_as_test(folder: Path, text: str) -> tuple[int, str]:
    file = folder / "test_exported.py"
    file.write_text(text, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={folder}", str(file)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout


@pytest.mark.parametrize(("policy", "code"), [("vllm-0.28", 0), ("vllm-0.24", 1)])
def test_the_exported_test_fails_exactly_while_the_fault_is_there(tmp_path: Path, policy: str, code: int) -> None:
    returned, out = ran_as_test(tmp_path, exported(TRACE, "pytest", policy))
    assert returned == code, out
    assert ("needs state@80" in out) == (code == 1)


def test_the_exported_test_may_be_about_a_policy_of_the_users(tmp_path: Path) -> None:
    text = exported(TRACE, "pytest", "tests/policies/no_fallback.py:NoFallback")
    assert ran_as_test(tmp_path, text)[0] == 0
    assert "def test_cap_meet_hit_resume_state_label()" in text


@pytest.mark.parametrize(("policy", "verdict"), [("vllm-0.28", Verdict.HOLDS_WITHIN), ("vllm-0.24", Verdict.VIOLATED)])
def test_the_exported_corpus_trace_must_violate_nothing(tmp_path: Path, policy: str, verdict: Verdict) -> None:
    (tmp_path / "trace.json").write_text(exported(TRACE, "corpus", None), encoding="utf-8")
    assert load_trace((tmp_path / "trace.json").read_text(encoding="utf-8")).expectations == ()
    assert {result.verdict for result in check_folder(POLICIES[policy], tmp_path)} == {verdict}


def test_itf_has_a_state_per_action() -> None:
    document = json.loads(exported(TRACE, "itf", "vllm-0.24"))
    assert len(document["states"]) == len(TRACE.actions) + 1


def test_the_command_prints_the_export_and_nothing_else(hitbound: Hitbound) -> None:
    ran = hitbound("export", str(CORPUS / "S02.json"), "--as", "corpus")
    assert ran.code == 0, ran.err
    assert ran.out == exported(TRACE, "corpus", None)
    assert hitbound("export", str(CORPUS / "S02.json")).code == 2
