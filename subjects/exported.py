"""Runs exported tests on a subject: those of one release in one process, since importing vLLM takes the time."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from subjects.process import Subject, SubjectUnavailable

RUN = """
import json, pathlib, runpy, sys, tempfile, traceback, unittest
for file in sorted(pathlib.Path(sys.argv[1]).glob("*.py")):
    raised = ""
    try:
        names = runpy.run_path(str(file))
        (test,) = [value for name, value in names.items() if name.startswith("test_")]
        with tempfile.TemporaryDirectory() as directory:
            test(pathlib.Path(directory))
    except unittest.SkipTest as skipped:
        raised = f"skipped: {skipped}"
    except Exception as error:
        (last, _), frames = list(traceback.walk_tb(error.__traceback__))[-1], traceback.extract_tb(error.__traceback__)
        told = str(error) or frames[-1].line.removesuffix("  # (L, E)")
        raised = f"{type(error).__name__} in {frames[-1].name}: {told}"
        engine = last.f_locals.get("engine")
        if engine is not None:
            raised += f"; admitted were {dict(sorted(engine.resumed.items()))}"
    print("hitbound", json.dumps([file.stem, raised]), flush=True)
"""

SECONDS = 600
"""For all tests of one release."""


def run_exported(subject: Subject, tests: Mapping[str, str]) -> dict[str, str]:
    """What each test raised, or why it was skipped, by its name; nothing if it passed.

    Raises SubjectUnavailable if they do not all end.
    """
    with tempfile.TemporaryDirectory() as directory:
        for number, text in enumerate(tests.values()):
            Path(directory, f"{number}.py").write_text(text, encoding="utf-8")
        ran = subprocess.run(
            [subject.interpreter, "-c", RUN, directory],
            env={**os.environ, **subject.environment()},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    lines = (line.removeprefix("hitbound ") for line in ran.stdout.splitlines() if line.startswith("hitbound "))
    raised = {list(tests)[int(number)]: told for number, told in map(json.loads, lines)}
    if raised.keys() != tests.keys():
        raise SubjectUnavailable(f"{subject.tree}: not every exported test ended\n{ran.stderr[-2000:]}")
    return raised
