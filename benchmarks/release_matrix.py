"""Runs the corpus, the exported tests of the findings and the hunt for the faults of 0.24 to 0.27 on installed vLLM
releases, and writes docs/release-matrix.json and docs/release-matrix.md.

    python -m benchmarks.release_matrix [RELEASE ...]     measure these releases (default: every installed one)
    python -m benchmarks.release_matrix --page            write the page anew from what was measured
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.bisect import raised_on
from hitbound.corpus import cases, finding_traces, named_corpus
from model.actions import Arrive, EndSaves, EvictObject, Execute, Schedule, Step
from model.connector import leaves_of
from model.errors import HitboundError
from model.tokens import tokens_of
from model.trace import Trace
from properties.replay import Replay
from properties.verdict import REQUIRED_CELL, Case
from subjects import conform, courses, installation, results
from subjects.process import SubjectProcess

DOCS = Path(__file__).parents[1] / "docs"
DATA, PAGE = DOCS / "release-matrix.json", DOCS / "release-matrix.md"

DOES_NOT_APPLY = "-"
NOT_MEASURED = "?"
"""The trace is newer than the run."""

LONGEST = 2048
"""Tokens that a request may have in the model that the driver configures."""

ACTIONS = 25
"""The most actions of a trace of the hunt, as in the profile `ci`."""

WANTED = {
    "0.24.0": Case.LOCAL,
    "0.25.1": Case.LOCAL,
    "0.26.0": Case.LOCAL,
    "0.27.0": Case.EXTERNAL,
    "0.27.1": Case.EXTERNAL,
}
"""HIT-RESUME in which case generated traces have to find, on which release."""


FAILURES = {
    "asked-inside-a-block": "is asked from",
    "auxiliary-outputs": "'replay': (3, 0)",
    "block-estimate-one-short": "Cannot get 1 free blocks",
    "block-of-the-step-copied": "out of a block of",
    "recomputed-in-place": "which is the null block",
    "second-attention-group-lags": "'replay': (2, 1)",
    "second-attention-group-not-trimmed": "blocks count as free",
    "state-of-a-chunk-start": "state@4 is cached for 8 tokens",
    "states-between-null-columns": "r holds 6 states",
    "tail-dropped-for-a-load": "'replay': (4, 4)",
    "tail-lost-while-attention-lags": "in truncate_computed_blocks",
}
"""What the exported test of a finding raises where it shows that finding; anything else has another reason."""

OF_THE_ERA = {"tail-dropped-for-a-load": ("0.24.0", "0.25.1")}
"""Releases on which the same numbers come of another fault: the deepest hit of any group."""


def main() -> None:
    asked = sys.argv[1:]
    if asked != ["--page"]:
        for release in asked or installation.installed():
            measured = _read()
            measured[release] = _measured(release)
            DATA.write_text(json.dumps(_in_order(measured), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(f"{release} measured", flush=True)  # noqa: T201
    PAGE.write_text(page(_read()), encoding="utf-8")
    for name in finding_traces():
        file = DOCS / "findings" / f"{name}.md"
        file.write_text(with_releases(file.read_text(encoding="utf-8"), name, _read()), encoding="utf-8")


def traces() -> dict[str, Trace]:
    """What runs on each release, by the words that head its row: the corpus, and the cases of public reports."""
    reports = {f"{case.name}: {case.title}": case.after.trace for case in cases()}
    return named_corpus() | reports


def applies(trace: Trace) -> bool:
    """Whether the trace can be given to a subject as it is: one step at a time, scripted leaves, no failed blocks, and
    no request that is too long."""
    leaves = leaves_of(trace.configuration.connector) if trace.configuration.connector else ()
    one_by_one = not any(isinstance(action, Schedule | Execute | EvictObject | EndSaves) for action in trace.actions)
    succeed = not any(isinstance(each, Step) and (each.failed_loads or each.failed_blocks) for each in trace.actions)
    arrivals = [action for action in trace.actions if isinstance(action, Arrive)]
    longest = max((len(tokens_of(each.prompt) + tokens_of(each.output)) for each in arrivals), default=0)
    scripted = all(leaf.store is None and leaf.peer is None for leaf in leaves)
    return one_by_one and succeed and scripted and longest < LONGEST


def _read() -> dict[str, Any]:
    return dict(json.loads(DATA.read_text(encoding="utf-8"))) if DATA.exists() else {}


def _in_order(measured: Mapping[str, Any]) -> dict[str, Any]:
    return {release: measured[release] for release in sorted(measured)}


def _measured(release: str) -> dict[str, Any]:
    with SubjectProcess(installation.subject_of(release)) as process:
        cells = {name: cell_on(trace, process) for name, trace in traces().items()}
        unaided = _hunted(WANTED[release], process) if release in WANTED else None
    return {"cells": cells, "exported": raised_on(release, finding_traces()), "unaided": unaided}


def cell_on(trace: Trace, process: SubjectProcess) -> str:
    """What the scheduler of the subject adopts for the last request of a trace, as it is shown in the table."""
    if not applies(trace):
        return DOES_NOT_APPLY
    try:
        return _cell(conform.run_on(trace, courses.policy_of(process.release), process, whole=True))
    except HitboundError:
        return DOES_NOT_APPLY


def _cell(replayed: Replay) -> str:
    raised = [found for found in replayed.violations if found.property == conform.NO_ENGINE_ERROR]
    if raised:
        kind = raised[0].message.split(":")[0]
        return DOES_NOT_APPLY if raised[0].action is None else f"**{kind}**"
    if not replayed.admissions:
        return "none"
    last = replayed.admissions[-1]
    violated = {found.property for found in replayed.violations}
    mark = "" if not violated else "*" if violated == {"CAP-MEET"} else "**"
    return f"{mark}{last.local}+{last.external}{mark}"


def _hunted(wanted: Case, process: SubjectProcess) -> dict[str, Any]:
    """Generated traces until one violates HIT-RESUME in the case wanted, and that one made smaller.

    Seconds are of processor time, on both sides: what they would be on a machine that does nothing else.
    """
    policy = courses.policy_of(process.release)
    began, found, ran = _processor(process), {}, 0
    for number in range(1000):
        outcome = conform.conform(
            process, policy, courses.Profile("one", traces=1, actions=ACTIONS, seed=number), number, compare=False
        )
        ran += outcome.traces.total()
        found = {key: of for key, of in outcome.found.items() if key.property == "HIT-RESUME" and key.case is wanted}
        found = {key: of for key, of in found.items() if key.configuration_class is REQUIRED_CELL.configuration_class}
        if found:
            break
    met = _processor(process)
    outcome.found = found
    (finding, *_) = results.findings(outcome, process)
    return {
        "property": f"HIT-RESUME ({wanted.value})",
        "traces": ran,
        "seconds": round(met - began, 1),
        "shrinking": round(_processor(process) - met, 1),
        "actions": len(finding.replay.trace.actions),
        "message": finding.message,
    }


def _processor(process: SubjectProcess) -> float:
    return time.process_time() + process.processor_seconds()


HEAD = """# Real vLLM releases

What vLLM's own scheduler does, from runs of `python -m benchmarks.release_matrix` on installed subjects
([the real engine](real-engine.md)). The numbers are in `release-matrix.json`.

"""
TABLE = """## The scenarios S1 to S15

What is adopted for the last request of the trace, as L+E in tokens; `hitbound replay tests/corpus/S02.json` draws one.
Bold: the shadow worker saw wrong content (loads do what the leaf's contract says, no more), or the scheduler raised.
Italic: only CAP-MEET, a divergent lookup for a connector that does not claim to restore what lags.

"""
CORPUS = """
## The corpus and the public reports

The same for every other trace. Rows of public reports run the trace of their case. `-`: the release refuses the
configuration, or the trace needs what only the model has (stores, several steps in flight, failed blocks).

"""
FINDINGS = """
## The findings

Each trace in `tests/corpus/findings` as a test for vLLM's own repository (`hitbound export FILE --as vllm-test`), run
on every release (`python -m benchmarks.bisect FILE`). `ok`: it passes. `FAILS`: as the finding says. `otherwise`: it
fails for another reason, which the page of the finding tells. `-`: it is skipped, for the release has nothing of what
it is about.

"""
UNAIDED = """
## Found without a trace

How long `hitbound conform` takes to find the fault of a release by generated traces, and to make the trace smaller.
Seconds are of processor time, of both processes, after the start of vLLM.

| release | property | traces | seconds until found | seconds to make it smaller | actions of the trace |
|---|---|---|---|---|---|
"""


def page(measured: Mapping[str, Any]) -> str:
    """The text of the page."""
    scenarios = [name for name in named_corpus() if re.fullmatch(r"S\d\d", name)]
    others = [name for name in traces() if name not in scenarios]
    cells = {name: [measured[release]["cells"].get(name, NOT_MEASURED) for release in measured] for name in traces()}
    failing = {name: [_word(name, release, measured) for release in measured] for name in finding_traces()}
    hunted = {release: each["unaided"] for release, each in measured.items() if each["unaided"]}
    unaided = "".join(
        f"| {release} | {found['property']} | {found['traces']} | {found['seconds']} | {found['shrinking']} "
        f"| {found['actions']} |\n"
        for release, found in hunted.items()
    )
    text = HEAD + TABLE + _table(measured, {f"S{int(name[1:])}": cells[name] for name in scenarios})
    text += CORPUS + _table(measured, {name: cells[name] for name in others if set(cells[name]) != {DOES_NOT_APPLY}})
    text += FINDINGS + _table(measured, {f"[{name}](findings/{name}.md)": row for name, row in failing.items()})
    return text + UNAIDED + unaided


BEGIN, END = "<!-- written by benchmarks.release_matrix -->", "<!-- end -->"


def with_releases(text: str, name: str, measured: Mapping[str, Any]) -> str:
    """The page of a finding with the list of what its exported test does on each release."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{_on_releases(name, measured)}\n{END}{rest.partition(END)[2]}"


def _on_releases(name: str, measured: Mapping[str, Any]) -> str:
    outcomes = [(release, _in_words(name, release, measured)) for release in measured]
    lines = []
    for words, alike in itertools.groupby(outcomes, key=lambda outcome: outcome[1]):
        releases = [release for release, _ in alike]
        lines.append(f"- {releases[0]}{f' to {releases[-1]}' if len(releases) > 1 else ''}: {words}\n")
    return "".join(lines)


def _in_words(name: str, release: str, measured: Mapping[str, Any]) -> str:
    raised = measured[release]["exported"][name]
    if not raised:
        return "passes"
    kind = "**fails**" if shows(name, release, measured) else "fails otherwise"
    return raised if raised.startswith("skipped") else f"{kind}, `{raised.replace('`', '')}`"


def shows(name: str, release: str, measured: Mapping[str, Any]) -> bool:
    """Whether the exported test of a finding showed that finding on a release."""
    return FAILURES[name] in measured[release]["exported"][name] and release not in OF_THE_ERA.get(name, ())


def _word(name: str, release: str, measured: Mapping[str, Any]) -> str:
    raised = measured[release]["exported"][name]
    if not raised:
        return "ok"
    return (
        DOES_NOT_APPLY if raised.startswith("skipped") else "FAILS" if shows(name, release, measured) else "otherwise"
    )


def affected(name: str, measured: Mapping[str, Any]) -> str:
    """The releases that a finding is in, in words."""
    spans: list[list[str]] = []
    for is_in, alike in itertools.groupby(measured, key=lambda release: shows(name, release, measured)):
        eras = [".".join(release.split(".")[:2]) for release in alike]
        spans += [[eras[0], eras[-1]]] if is_in else []
    return ", ".join(first if first == last else f"{first} to {last}" for first, last in spans)


def _table(releases: Mapping[str, Any], rows: Mapping[str, list[str]]) -> str:
    def lines() -> Iterator[str]:
        yield f"| | {' | '.join(releases)} |"
        yield "|---" * (1 + len(releases)) + "|"
        yield from (f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items())

    return "\n".join(lines()) + "\n"


if __name__ == "__main__":
    main()
