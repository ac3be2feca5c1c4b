"""Text on standard output: coloured where a person reads it, plain in a pipe, a file or under NO_COLOR."""

from __future__ import annotations

import os
import shutil
import sys

from rich.console import Console
from rich.text import Text

PLAIN_WIDTH = 120
"""Characters of a line where standard output is not a terminal."""

STYLES = {
    r"\b(VIOLATED(\(known\))?|CTI)\b": "bold red",
    r"\b(UNKNOWN|VACUOUS|HOLDS_WITHIN)\b": "yellow",
    r"\b(PROVED|proved|as expected)\b": "green",
    r"(?m)^ *! .*$": "red",
    r"![*]?\d+!": "bold red",
    r"\{[ *\d]+\}": "cyan",
    r"<== wins": "bold",
}
"""Pattern -> style; what is coloured also differs in words."""


def width() -> int:
    """Characters of a line of output."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PLAIN_WIDTH


def show(text: str) -> None:
    """Print `text` on standard output, line by line as it is."""
    styled = Text(text)
    for pattern, style in STYLES.items():
        styled.highlight_regex(pattern, style)
    plain = bool(os.environ.get("NO_COLOR"))
    Console(highlight=False, color_system=None if plain else "auto").print(styled, soft_wrap=True)
