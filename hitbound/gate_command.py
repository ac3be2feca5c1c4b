"""`hitbound gate`: which gate is run, and where its report goes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import click

from hitbound import engines
from hitbound.examples import runs_of
from hitbound.formats import FORMATS, rendered
from hitbound.gate_configuration import Gate, Profile, find_gate
from hitbound.gate_text import short_text
from hitbound.known_findings import read_known
from hitbound.matrix import named
from hitbound.progress import progress
from hitbound.report import Report
from hitbound.terminal import show
from model.errors import HitboundError
from model.trace import Trace
from properties.strict_json import write_text

FILE = click.Path(path_type=Path)

_OPTIONS = (
    click.option("--config", "file", type=FILE, metavar="FILE", help="Default: hitbound.toml, or pyproject.toml."),
    click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        default="text",
        show_default=True,
        help="What is printed on standard output.",
    ),
    click.option(
        "--output",
        "outputs",
        metavar="FORMAT=FILE",
        multiple=True,
        help="Write the report in this format to this file as well. May be repeated.",
    ),
    click.option(
        "--changed-since",
        "revision",
        metavar="REV",
        help="Name the functions of the policies that differ from this git revision. Everything is run all the same.",
    ),
    click.option("--profile", type=click.Choice(engines.PROFILES), help="Instead of the profile in the configuration."),
    click.option("--quiet", is_flag=True, help="No progress; as text only a headline per policy and the exit code."),
)


class OutputError(HitboundError):
    """An `--output` that is no FORMAT=FILE, or a file that cannot be written."""


def gate_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `gate` beside those that other commands have."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def gate_report(file: Path | None, revision: str | None, profile: str | None, quiet: bool) -> Report:
    """Run the gate."""
    from hitbound.changes import changes_since
    from hitbound.gate_run import policies_of, run_gate

    gate = find_gate(file)
    if profile is not None:
        gate = Gate(gate.file, attrs.evolve(gate.configuration, profile=Profile(profile)))
    known = read_known(gate.path(gate.configuration.known)) if gate.configuration.known else ()
    policies = policies_of(gate)
    changes = changes_since(revision, policies) if revision is not None else ()
    with progress(quiet) as say:
        return run_gate(gate, policies, known, changes, say)


def read_outputs(outputs: tuple[str, ...]) -> tuple[tuple[str, Path], ...]:
    """Format and file of each `--output`; raises OutputError, before anything is run."""
    read: list[tuple[str, Path]] = []
    for output in outputs:
        form, equals, file = output.partition("=")
        if form not in FORMATS or not equals or not file:
            raise OutputError(f"--output {output}: expected FORMAT=FILE with a format of {', '.join(FORMATS)}")
        read.append((form, Path(file)))
    return tuple(read)


def smallest_traces(report: Report) -> dict[str, Trace]:
    """The trace of each run that the report draws, by a name for its file."""
    found: dict[str, Trace] = {}
    for policy in report.policies:
        for first, *_ in runs_of(report.of(policy)):
            name = re.sub(r"[^\w.-]+", "-", f"{policy.name}-{named(first)}".replace("E > 0", "E").replace("E = 0", "L"))
            if first.result.trace is not None:
                found[name.strip("-")] = first.result.trace
    return found


def publish(report: Report, form: str, outputs: tuple[tuple[str, Path], ...], quiet: bool, width: int) -> int:
    """Write and print the report; the exit code."""
    for output_form, path in outputs:
        _write(path, rendered(report, output_form, width))
    if form == "text":
        show(short_text(report, width) if quiet else rendered(report, form, width))
    else:
        click.echo(rendered(report, form, width), nl=False)
    return report.code


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(text, path)
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror}; --output takes a file that can be written") from None
