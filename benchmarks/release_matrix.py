"""Runs the traces of the corpus on installed vLLM releases and writes docs/release-matrix.md.

    python -m benchmarks.release_matrix [RELEASE ...]

Without arguments every installed release runs (`hitbound subject install`). Cells are what the scheduler adopted for
the last request of the trace, as L+E in tokens.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hitbound.corpus import corpus
from model.trace import Trace
from properties.replay import Replay
from subjects import conform, courses, installation
from subjects.process import SubjectProcess

PAGE = Path(__file__).parents[1] / "docs" / "release-matrix.md"

HEAD = """# The corpus on real vLLM releases

What vLLM's own scheduler adopts for the last request of each trace of the corpus, as L+E in tokens, from a run of
`python -m benchmarks.release_matrix`. Bold: the shadow worker saw a violation. `assertion`: the scheduler failed one of
its own checks. `-`: the release refuses the configuration. Loads do what the leaf's contract says, no more.

"""


def main() -> None:
    releases = sys.argv[1:] or list(installation.installed())
    columns = {release: _column(release) for release in releases}
    titles = [trace.title for trace in corpus()]
    lines = ["| trace | " + " | ".join(releases) + " |", "|---" * (len(releases) + 1) + "|"]
    for number, title in enumerate(titles):
        lines.append(f"| {title} | " + " | ".join(column[number] for column in columns.values()) + " |")
    PAGE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


def _column(release: str) -> list[str]:
    with SubjectProcess(installation.subject_of(release)) as process:
        policy = courses.policy_of(process.release)
        return [_cell(trace, conform.run_on(trace, policy, process, whole=True)) for trace in corpus()]


def _cell(trace: Trace, replayed: Replay) -> str:
    raised = [found for found in replayed.violations if found.property == conform.NO_ENGINE_ERROR]
    if raised:
        return (
            "-" if raised[0].action is None else f"**{raised[0].message.split(':')[0].removesuffix('Error').lower()}**"
        )
    if not replayed.admissions:
        return "none"
    last = replayed.admissions[-1]
    adopted = f"{last.local}+{last.external}"
    return f"**{adopted}**" if replayed.violations else adopted


if __name__ == "__main__":
    main()
