"""What a subject does instead of answering is an observation, never a crash of ours. The drivers here need no vLLM."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from subjects.process import Failure, Subject, SubjectProcess, SubjectUnavailable

READY = """
import json, os, signal, sys, time
def say(**message):
    print(json.dumps({"protocol": 2, **message}), flush=True)
say(ready="0.0")
for line in sys.stdin:
    command = json.loads(line)
    """


def process(directory: Path, driver: str, reply_seconds: float = 60) -> SubjectProcess:
    script = directory / "driver.py"
    script.write_text(driver)
    return SubjectProcess(Subject(Path(sys.executable), directory), driver=script, reply_seconds=reply_seconds)


def failure_of(directory: Path, body: str, reply_seconds: float = 60) -> Failure:
    with process(directory, READY + body, reply_seconds) as subject:
        reply = subject.ask("step")
        assert isinstance(reply, Failure)
        return reply


def test_a_state_comes_back(tmp_path: Path) -> None:
    with process(tmp_path, READY + "say(state={'did': command['do'], 'budget': command['budget']})") as subject:
        assert subject.release == "0.0"
        assert subject.ask("step", budget=3) == {"did": "step", "budget": 3}


def test_an_exception_of_the_subject(tmp_path: Path) -> None:
    error = "{'type': 'AssertionError', 'message': 'R <= N', 'traceback': 'where'}"
    assert failure_of(tmp_path, f"say(error={error})") == Failure("AssertionError", "R <= N", "where")


def test_a_subject_that_is_killed_in_mid_step(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, "print('last words', file=sys.stderr); os.kill(os.getpid(), signal.SIGKILL)")
    assert (failure.kind, failure.traceback) == ("crash", "last words")


def test_a_subject_that_hangs(tmp_path: Path) -> None:
    assert failure_of(tmp_path, "time.sleep(600)", reply_seconds=0.2).kind == "hang"


def test_a_subject_that_prints_to_standard_output(tmp_path: Path) -> None:
    assert failure_of(tmp_path, "print('INFO all is well', flush=True)") == Failure("garbage", "INFO all is well")


def test_a_reply_that_is_no_message(tmp_path: Path) -> None:
    assert failure_of(tmp_path, "print('[1, 2]', flush=True)").kind == "garbage"
    assert failure_of(tmp_path, "say(unheard_of=1)").kind == "garbage"


def test_a_subject_that_speaks_a_newer_version(tmp_path: Path) -> None:
    assert (
        failure_of(tmp_path, "say(protocol_two=1) if 0 else print('{\"protocol\": 3}', flush=True)").kind == "version"
    )


def test_the_process_is_started_again_after_a_crash(tmp_path: Path) -> None:
    body = "say(state={}) if command['do'] == 'build' else sys.exit(3)"
    with process(tmp_path, READY + body) as subject:
        assert isinstance(subject.ask("step"), Failure)
        assert subject.ask("build") == {}


def test_a_subject_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(SubjectUnavailable, match="No module named 'vllm'"):
        process(tmp_path, "import vllm").start()
    with pytest.raises(SubjectUnavailable, match="cannot start"):
        SubjectProcess(Subject(tmp_path / "python", tmp_path)).start()
