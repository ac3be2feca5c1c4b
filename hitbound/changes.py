"""Which functions of a policy differ from an earlier revision, and what depends on them.

Functions are compared by their syntax: comments, layout and docstrings are no change. The gate runs everything all the
same; what changed is named, so that a reader knows where to look.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import attrs

from hitbound.policy_loading import FUNCTIONS, LIST_SHAPED
from hitbound.source_lines import DECIDED_BY, home_of, shown_path
from model.errors import HitboundError
from model.policy import Policy

MODULE = "the rest of the module"
"""Name of all statements of a module or class that are no functions."""


class RevisionError(HitboundError):
    """The revision given with `--changed-since` cannot be read."""


@attrs.frozen
class Change:
    """`function` of the policy's file differs. `parts` of the policy run it, and `properties` are what they decide."""

    policy: str
    file: str
    line: int
    function: str
    parts: tuple[str, ...]
    properties: tuple[str, ...]


def changes_since(revision: str, policies: Iterable[Policy]) -> tuple[Change, ...]:
    """What changed in the files that the policies are written in; raises RevisionError."""
    return tuple(
        change
        for policy in policies
        for file in _files(policy)
        for change in _changes_in(policy, file, file.read_text(encoding="utf-8"), _earlier(revision, file))
    )


def change_lines(changes: Iterable[Change]) -> Iterator[str]:
    """One line per change."""
    for change in changes:
        decides = f", which decides {', '.join(change.properties)}" if change.properties else ""
        yield f"changed: {change.function} at {change.file}:{change.line}{decides}"


def _changes_in(policy: Policy, file: Path, now: str, before: str) -> Iterator[Change]:
    new, old = functions_of(now), functions_of(before)
    for name in dict.fromkeys([*new, *old]):
        if name in new and name in old and new[name].text == old[name].text:
            continue
        parts = _parts_running(name, {**old, **new})
        yield Change(
            policy=policy.name,
            file=shown_path(str(file)),
            line=new[name].line if name in new else 1,
            function=name if name in new else f"{name} (removed)",
            parts=parts,
            properties=tuple(property for property, deciding in DECIDED_BY.items() if set(deciding) & set(parts)),
        )


@attrs.frozen
class Source:
    """One function (or what is left of a module): where it starts, its syntax, and the names it uses."""

    line: int
    text: str
    uses: frozenset[str]


def functions_of(source: str) -> dict[str, Source]:
    """Qualified name -> function, and MODULE -> all the rest; nothing if the text is no Python."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return {}
    found: dict[str, Source] = {}
    rest: list[ast.stmt] = []

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in _without_docstring(body):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[prefix + node.name] = _source(node)
            elif isinstance(node, ast.ClassDef):
                rest.append(ast.ClassDef(node.name, node.bases, node.keywords, [], node.decorator_list))
                visit(node.body, f"{prefix}{node.name}.")
            else:
                rest.append(node)

    visit(tree.body, "")
    found[MODULE] = Source(1, "\n".join(map(ast.dump, rest)), frozenset())
    return found


def _source(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Source:
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner.body = _without_docstring(inner.body)
    names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    attributes = {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}
    return Source(node.lineno, ast.dump(node), frozenset(names | attributes))


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    match body:
        case [ast.Expr(ast.Constant(str())), *rest]:
            return rest
    return body


def _parts_running(changed: str, functions: Mapping[str, Source]) -> tuple[str, ...]:
    """The parts of a policy that run the changed function, themselves or through others of the file."""
    parts = {*FUNCTIONS, *LIST_SHAPED}
    if changed == MODULE:
        return tuple(sorted(parts))
    reached = {changed.rpartition(".")[2]}
    while True:
        callers = {name.rpartition(".")[2] for name, source in functions.items() if source.uses & reached}
        if callers <= reached:
            return tuple(sorted(reached & parts))
        reached |= callers


def _files(policy: Policy) -> list[Path]:
    """The files that the policy and its bases are written in, beside those of hitbound itself."""
    kinds = type(policy).__mro__
    files = [home for kind in kinds if (home := home_of(kind)) and kind is not object]
    return [file for file in dict.fromkeys(files) if _in_work_tree(file)]


def _in_work_tree(file: Path) -> bool:
    return _git(file.parent, "rev-parse", "--is-inside-work-tree") == "true\n"


def _earlier(revision: str, file: Path) -> str:
    """The text of the file at the revision; empty where it did not exist."""
    if _git(file.parent, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}") is None:
        raise RevisionError(
            f"--changed-since {revision}: git knows no such revision at {file.parent}; in CI, fetch it first "
            "(actions/checkout with fetch-depth: 0)"
        )
    return _git(file.parent, "show", f"{revision}:./{file.name}") or ""


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints, or None where it fails."""
    try:
        ran = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise RevisionError(
            f"--changed-since needs git: {error.strerror}; install it, or leave the option out"
        ) from None
    return ran.stdout if ran.returncode == 0 else None
