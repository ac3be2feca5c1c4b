"""How the process behaves: what it imports, where it writes, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hitbound import process
from hitbound.exit_codes import PRECEDENCE
from properties.catalogue import Kind
from tests.command_line import CHECKOUT, CORPUS, Hitbound


def test_help_prints_every_exit_code(hitbound: Hitbound) -> None:
    for arguments in (["--help"], ["check", "--help"], ["prove", "-h"], ["fuzz", "-h"]):
        ran = hitbound(*arguments)
        assert ran.code == 0
        assert ran.err == ""
        for code, meaning in PRECEDENCE:
            assert f"{code.value:>5}  {meaning}" in ran.out


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["invariants"], ["invariants", "--format", "json"], ["replay", str(CORPUS / "S01.json")]],
    ids=lambda arguments: arguments[0],
)
def test_solvers_and_hypothesis_are_imported_only_by_what_runs_them(arguments: list[str], tmp_path: Path) -> None:
    code = (
        "import sys; from hitbound.process import run; code = run(sys.argv[1:]);"
        "heavy = {'z3', 'cvc5', 'hypothesis'} & set(sys.modules); sys.exit(str(heavy) if heavy else code)"
    )
    ran = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["chekc"], "No such command 'chekc'"),
        (["check", "--profile", "fast"], "'fast' is not one of"),
        (["check", "--seed", "-1"], "-1 is not in the range"),
        (["check", "--policy", "vllm-9.9"], "no such policy"),
        (["check", "--policy", "none.py:Mine"], "none.py: cannot be read"),
        (["check", "--known", "none.json"], "none.json: cannot be read"),
        (["replay", "none.json"], "none.json: cannot be read"),
        (["replay"], "Missing argument"),
    ],
)
def test_wrong_usage_is_2_and_says_what_is_wrong(hitbound: Hitbound, arguments: list[str], said: str) -> None:
    ran = hitbound(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert said in ran.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ('{"schema": "hitbound-trace/1"}', "$.configuration: this key is missing"),
        ('{"schema": "hitbound-trace/9"}', "upgrade hitbound"),
        ((CORPUS / "S01.json").read_text(encoding="utf-8")[:-40], "cut off"),
        ((CORPUS / "S01.json").read_text(encoding="utf-8").replace('"fill"', '"full"', 1), "fill"),
    ],
)
def test_a_faulty_trace_is_2(hitbound: Hitbound, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "trace.json").write_text(text, encoding="utf-8")
    ran = hitbound("replay", "trace.json")
    assert ran.code == 2
    assert ran.out == ""
    assert said in ran.err


def test_an_internal_error_is_70_with_a_traceback_only_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: object, **settings: object) -> int:
        raise ZeroDivisionError("seven")

    monkeypatch.setattr(process.command, "main", broken)
    monkeypatch.delenv(process.DEBUG_VARIABLE, raising=False)
    assert process.run([]) == 70
    said = capsys.readouterr()
    assert said.out == ""
    assert "ZeroDivisionError: seven" in said.err
    assert "report it" in said.err
    assert "Traceback" not in said.err
    monkeypatch.setenv(process.DEBUG_VARIABLE, "1")
    assert process.run([]) == 70
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_no_way_to_end_early_is_success(monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    def ends(*arguments: object, **settings: object) -> int:
        raise error(0)

    monkeypatch.setattr(process.command, "main", ends)
    assert process.run([]) == (130 if error is KeyboardInterrupt else 70)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "prove", "fuzz"])
@pytest.mark.parametrize("after", [1.0, 3.0])
def test_an_interrupt_is_130_with_nothing_half_written(tmp_path: Path, command: str, after: float) -> None:
    profile = ["--profile", "nightly"] if command != "prove" else []
    started = subprocess.Popen(
        [sys.executable, "-m", "hitbound", command, *profile, "--format", "json", "--traces", "found"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(after)
    if started.poll() is not None:
        pytest.skip(f"{command} ended within {after} s")
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=60)
    if out and json.loads(out)["results"]:
        pytest.skip(f"{command} had its whole report printed after {after} s")
    assert started.returncode == 130, err
    assert out == ""
    assert "interrupted" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_an_interrupt_while_the_report_is_written_waits_for_its_end(tmp_path: Path) -> None:
    # The report is longer than a pipe holds, so it is being written until somebody reads it.
    with subprocess.Popen(
        [sys.executable, "-m", "hitbound", "prove", "--format", "json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as started:
        assert started.stdout is not None
        first = os.read(started.stdout.fileno(), 1)
        time.sleep(0.5)
        started.send_signal(signal.SIGINT)
        time.sleep(0.5)
        rest, err = started.communicate(timeout=60)
    assert json.loads(first + rest)["results"]
    assert started.returncode == 130, err


def test_a_closed_pipe_is_no_verdict() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "hitbound", "invariants"], cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as started:
        assert started.stdout is not None
        started.stdout.close()
        started.wait(timeout=60)
    assert started.returncode == -signal.SIGPIPE


def test_no_colour_in_a_pipe(hitbound: Hitbound) -> None:
    assert "\x1b" not in hitbound("replay", str(CORPUS / "S01.json")).out


def test_invariants_as_json(hitbound: Hitbound) -> None:
    entries = {entry["id"]: entry for entry in hitbound("invariants", "--format", "json").json["invariants"]}
    assert entries["HIT-RESUME"]["status"] == "checked"
    assert all(entry["waits_for"] for entry in entries.values() if entry["status"] == "waits")
    assert {entry["kind"] for entry in entries.values()} == {kind.value for kind in Kind}


def test_json_is_alone_on_standard_output(hitbound: Hitbound) -> None:
    ran = hitbound("invariants", "--format", "json")
    assert json.loads(ran.out)
    assert ran.err == ""
