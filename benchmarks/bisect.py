"""Runs the exported test of a trace on installed vLLM releases: since when, and until when, it fails.

python -m benchmarks.bisect TRACE [RELEASE ...]
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from hitbound.export_command import exported
from model.trace import Trace
from properties.trace_document import read_trace
from subjects import installation
from subjects.exported import run_exported


def main() -> None:
    file, *releases = sys.argv[1:]
    for release in releases or installation.installed():
        (raised,) = raised_on(release, {"trace": read_trace(Path(file))}).values()
        print(f"{release}: {raised or 'passes'}")  # noqa: T201


def raised_on(release: str, traces: Mapping[str, Trace]) -> dict[str, str]:
    """What the exported test of each trace raises on a release."""
    tests = {name: exported(trace, "vllm-test", None) for name, trace in traces.items()}
    return run_exported(installation.subject_of(release), tests)


def affected(raised: Mapping[str, str]) -> tuple[str, ...]:
    """The releases, in their order, on which a test fails; a skipped one says nothing."""
    return tuple(release for release, error in raised.items() if error and not error.startswith("skipped"))


def span(releases: Iterable[str], every: Iterable[str]) -> str:
    """Releases in words: from the first to the last, which have to be neighbours."""
    named, all_of = list(releases), list(every)
    if not named:
        return "none"
    first, last = all_of.index(named[0]), all_of.index(named[-1])
    assert named == all_of[first : last + 1], f"not neighbours: {named}"
    return f"{named[0]} to {named[-1]}" if len(named) > 1 else named[0]


if __name__ == "__main__":
    main()
