"""`hitbound explore`: which scopes are searched, how far, and what is written beside the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from hitbound.progress import Say
from model.errors import HitboundError
from model.policy import Policy
from properties.strict_json import write_text
from properties.verdict import Result

FILE = click.Path(path_type=Path)

MAX_STATES = 5_000_000
MAX_MEMORY = 2_000
"""For the states, in MB."""

_OPTIONS = (
    click.option(
        "--scope",
        "asked_scopes",
        metavar="NAME|FILE",
        multiple=True,
        help="A named scope, or a trace document: its configuration, its arrivals in any order, and the kinds of "
        "disturbance that occur in it. What is named is required to hold, whatever its cell. May be repeated. Default: "
        "every named scope.",
    ),
    click.option("--max-states", type=click.IntRange(min=1), default=MAX_STATES, show_default=True),
    click.option(
        "--max-memory", type=click.IntRange(min=1), default=MAX_MEMORY, show_default=True, help="For the states, in MB."
    ),
    click.option("--no-symmetry", is_flag=True, help="Tell apart states that differ only in names; remember nothing."),
    click.option("--checkpoint", type=FILE, metavar="FILE", help="Go on from this file, and write it. One scope only."),
    click.option("--dot", "dot_file", type=FILE, metavar="FILE", help="Write the state graph. One scope only."),
    click.option("--itf", "itf_directory", type=FILE, metavar="DIR", help="Write violating traces as ITF."),
)


class ExploreUsage(HitboundError):
    """Options of `explore` that do not go together, or a scope that does not exist."""


def explore_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `explore` beside those that other commands have."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def explore_run(
    asked_scopes: tuple[str, ...],
    max_states: int = MAX_STATES,
    max_memory: int = MAX_MEMORY,
    no_symmetry: bool = False,
    checkpoint: Path | None = None,
    dot_file: Path | None = None,
    itf_directory: Path | None = None,
) -> Callable[[Policy, Say], tuple[Result, ...]]:
    """The search that the options ask for, of one policy after another."""
    from solver.explore import results_of, searched
    from solver.itf import itf
    from solver.scope import Scope, read_scope
    from solver.scopes import SCOPES
    from solver.search import FULL, NONE, Limits
    from solver.state_graph import dot

    def scope_of(asked: str) -> Scope:
        if asked in SCOPES:
            return SCOPES[asked]
        if not Path(asked).exists():
            raise ExploreUsage(f"--scope {asked}: no such scope or file; the scopes are {', '.join(SCOPES)}")
        return read_scope(Path(asked))

    scopes = tuple(map(scope_of, asked_scopes)) or tuple(SCOPES.values())
    if len(scopes) > 1 and (checkpoint or dot_file):
        raise ExploreUsage("--checkpoint and --dot are for one scope; name it with --scope")
    limits, symmetry = Limits(max_states, max_memory), NONE if no_symmetry else FULL

    def run(policy: Policy, say: Say) -> tuple[Result, ...]:
        found: list[Result] = []
        for scope in scopes:
            search = searched(policy, scope, symmetry=symmetry, limits=limits, checkpoint=checkpoint, progress=say)
            results = results_of(search, policy, asked_for=bool(asked_scopes))
            found += results
            if dot_file is not None:
                _write(dot_file, dot(search))
            for number, result in enumerate(results):
                if itf_directory is not None and result.trace is not None:
                    name = f"{policy.name}-{scope.name}-{result.property}-{number}.itf.json"
                    _write(itf_directory / name, itf(result.trace, policy))
        return tuple(found)

    return run


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(text, path)
    except OSError as error:
        raise ExploreUsage(f"{path}: {error.strerror}; name a file or directory that can be written") from None
