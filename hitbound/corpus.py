"""The corpus of traces and of public reports: in a wheel beside this file, in a checkout under tests/."""

from __future__ import annotations

from pathlib import Path

from model.trace import Trace
from properties.case_document import Case, read_case
from properties.trace_document import read_trace

_PACKAGED = Path(__file__).with_name("corpus")
_CHECKOUT = Path(__file__).resolve().parents[1] / "tests" / "corpus"


def corpus() -> tuple[Trace, ...]:
    """All traces of the corpus, ordered by file name."""
    return tuple(named_corpus().values())


def named_corpus() -> dict[str, Trace]:
    """The traces of the corpus by the name of their file."""
    return {path.stem: read_trace(path) for path in sorted(_directory().glob("*.json"))}


def cases() -> tuple[Case, ...]:
    """All public reports that are cases, by the number of the record; one record may have several."""
    found = [read_case(path) for path in sorted((_directory() / "reports").glob("*.json"))]
    return tuple(sorted(found, key=lambda case: case.number))


def finding_traces() -> dict[str, Trace]:
    """Id of a finding -> a run of vLLM's scheduler that shows it, with the rules of the newest release."""
    return {path.stem: read_trace(path) for path in sorted((_directory() / "findings").glob("*.json"))}


def counterexample_traces() -> dict[str, Trace]:
    """Id of an invariant -> a run that violates it under the first policy that the trace names, and under no other."""
    paths = sorted((_directory() / "counterexamples").glob("*.json"))
    return {path.stem: read_trace(path) for path in paths}


def _directory() -> Path:
    return _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT
