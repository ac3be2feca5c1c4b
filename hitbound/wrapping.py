"""Breaking lines that are too long for the output."""

from __future__ import annotations

import textwrap


def wrapped(line: str, width: int) -> list[str]:
    """`line` in pieces of at most `width` characters; what follows the first is indented four more."""
    indent = line[: len(line) - len(line.lstrip())] + "    "
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [
        line
    ]
