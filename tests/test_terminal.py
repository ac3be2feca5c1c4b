"""On a terminal: colour unless NO_COLOR, progress unless --quiet, and lines that fit; in a pipe none of it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import attrs
import pytest

from tests.command_line import CHECKOUT, CORPUS

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@attrs.frozen
class Screen:
    """All that a terminal showed."""

    text: str

    @property
    def plain(self) -> str:
        return ESCAPE.sub("", self.text).replace("\r\n", "\n")


def on_a_terminal(folder: Path, *arguments: str, columns: int = 100, **environment: str) -> Screen:
    """Run the command with standard output and error on a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    settings = {"PYTHONPATH": str(CHECKOUT), "TERM": "xterm-256color", **environment}
    with subprocess.Popen(
        [sys.executable, "-m", "hitbound", *arguments],
        cwd=folder,
        env={**kept, **settings},
        stdout=theirs,
        stderr=theirs,
    ) as started:
        os.close(theirs)
        shown = bytearray()
        while True:
            try:
                read = os.read(ours, 65536)
            except OSError:
                break
            if not read:
                break
            shown += read
        started.wait(timeout=60)
    os.close(ours)
    return Screen(shown.decode("utf-8"))


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A gate that takes a second."""
    (tmp_path / "hitbound.toml").write_text('policies = ["vllm-0.24"]\nengines = ["corpus"]', encoding="utf-8")
    return tmp_path


def test_a_terminal_shows_colour_and_progress(gate: Path) -> None:
    screen = on_a_terminal(gate, "gate")
    assert "\x1b[1;31mVIOLATED" in screen.text
    assert "corpus vllm-0.24" in screen.plain


def test_no_color_leaves_words(gate: Path) -> None:
    screen = on_a_terminal(gate, "gate", "--quiet", NO_COLOR="1")
    assert "\x1b[" not in screen.text
    assert "vllm-0.24: VIOLATED" in screen.plain


def test_quiet_shows_no_progress_and_only_what_counts(gate: Path) -> None:
    screen = on_a_terminal(gate, "gate", "--quiet")
    assert "corpus vllm-0.24" not in screen.plain
    assert "run 1" not in screen.plain
    assert "exit code 1" in screen.plain


@pytest.mark.parametrize("columns", [60, 100])
def test_a_narrow_terminal_gets_lines_that_fit(tmp_path: Path, columns: int) -> None:
    screen = on_a_terminal(tmp_path, "replay", str(CORPUS / "S02.json"), columns=columns, NO_COLOR="1")
    assert max(map(len, screen.plain.splitlines())) <= columns
    assert "R = 80" in screen.plain
