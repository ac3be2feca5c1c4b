"""Runs a test on installed vLLM releases, that of a trace or one in vLLM's words: since when, and until when, it fails.

python -m benchmarks.bisect TRACE.json|TEST.py [RELEASE ...]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from hitbound.export_command import exported
from model.trace import Trace
from properties.trace_document import read_trace
from subjects import installation
from subjects.exported import run_exported


def main() -> None:
    file, *releases = sys.argv[1:]
    path = Path(file)
    test = path.read_text(encoding="utf-8") if path.suffix == ".py" else exported(read_trace(path), "vllm-test", None)
    for release in releases or installation.installed():
        (raised,) = run_exported(installation.subject_of(release), {"test": test}).values()
        print(f"{release}: {raised or 'passes'}")  # noqa: T201


def raised_on(release: str, traces: Mapping[str, Trace]) -> dict[str, str]:
    """What the exported test of each trace raises on a release."""
    tests = {name: exported(trace, "vllm-test", None) for name, trace in traces.items()}
    return run_exported(installation.subject_of(release), tests)


if __name__ == "__main__":
    main()
