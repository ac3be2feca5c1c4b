"""Running the command line as a user does: in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

CHECKOUT = Path(__file__).resolve().parents[1]
CORPUS = CHECKOUT / "tests" / "corpus"


@attrs.frozen
class Ran:
    """A finished run of `hitbound`."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be one JSON document."""
        return json.loads(self.out)


Hitbound = Callable[..., Ran]
"""Runs `hitbound ARGUMENTS`."""


def run_in(folder: Path, *arguments: str, timeout: float = 900) -> Ran:
    """Run the command with `folder` as the current directory."""
    finished = subprocess.run(
        [sys.executable, "-m", "hitbound", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Ran(finished.returncode, finished.stdout, finished.stderr)
