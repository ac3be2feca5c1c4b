"""Which functions of a policy differ from an earlier revision, and what depends on them.

Functions are compared by their syntax: comments, layout and docstrings are no change. The gate runs everything all the
same; what changed is named, so that a reader knows where to look.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
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
    """What changed in the files that the policies are written in, or import; raises RevisionError."""
    return tuple(change for policy in policies for change in _changes_of(revision, policy))


def change_lines(changes: Iterable[Change]) -> Iterator[str]:
    """One line per change."""
    for change in changes:
        decides = f", which decides {', '.join(change.properties)}" if change.properties else ""
        yield f"changed: {change.function} at {change.file}:{change.line}{decides}"


def _changes_of(revision: str, policy: Policy) -> Iterator[Change]:
    files = _files(policy)
    new = {file: functions_of(file.read_text(encoding="utf-8")) for file in files}
    old = {file: functions_of(_earlier(revision, file)) for file in files}
    everything = [source for functions in (*new.values(), *old.values()) for source in functions.items()]
    for file in files:
        for name in dict.fromkeys([*new[file], *old[file]]):
            now, before = new[file].get(name), old[file].get(name)
            if now is not None and before is not None and now.text == before.text:
                continue
            parts = _parts_running(name, everything)
            yield Change(
                policy=policy.name,
                file=shown_path(str(file)),
                line=now.line if now else 1,
                function=name if now else f"{name} (removed)",
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


def _parts_running(changed: str, functions: Sequence[tuple[str, Source]]) -> tuple[str, ...]:
    """The parts of a policy that run the changed function, themselves or through others of its files, by name."""
    parts = {*FUNCTIONS, *LIST_SHAPED}
    if changed == MODULE:
        return tuple(sorted(parts))
    reached = {changed.rpartition(".")[2]}
    while True:
        callers = {name.rpartition(".")[2] for name, source in functions if source.uses & reached}
        if callers <= reached:
            return tuple(sorted(reached & parts))
        reached |= callers


def _files(policy: Policy) -> list[Path]:
    """The files that the policy and its bases are written in, and what these import, as far as git keeps them."""
    found: dict[Path, None] = {}
    waiting = [home.resolve() for kind in type(policy).__mro__ if (home := home_of(kind))]
    while waiting:
        file = waiting.pop(0)
        if file not in found and _in_work_tree(file):
            found[file] = None
            waiting += _imported(file)
    return list(found)


def _imported(file: Path) -> Iterator[Path]:
    """The files of the modules beside this one, or below it, that it imports."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            imported = getattr(sys.modules.get(name), "__file__", None)
            if imported and Path(imported).is_relative_to(file.parent):
                yield Path(imported)


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
