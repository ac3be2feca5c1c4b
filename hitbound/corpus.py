"""The corpus of traces: in a wheel beside this file, in a checkout under tests/."""

from __future__ import annotations

from pathlib import Path

from model.trace import Trace
from properties.trace_document import read_trace

_PACKAGED = Path(__file__).with_name("corpus")
_CHECKOUT = Path(__file__).resolve().parents[1] / "tests" / "corpus"


def corpus() -> tuple[Trace, ...]:
    """All traces of the corpus, ordered by file name."""
    directory = _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT
    return tuple(read_trace(path) for path in sorted(directory.glob("*.json")))
