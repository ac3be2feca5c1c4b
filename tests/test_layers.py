"""Imports go down one storey at a time, and the model knows no engine."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]

MAY_IMPORT = {
    "model": {"model"},
    "properties": {"properties", "model"},
    "solver": {"solver", "properties", "model"},
    "subjects": {"subjects", "properties", "model"},
    "hitbound": {"hitbound", "subjects", "solver", "properties", "model"},
}

FORBIDDEN = {
    "model": {"z3", "cvc5", "hypothesis", "cattrs", "click", "rich"},
    "properties": {"z3", "cvc5", "click", "rich"},
    "solver": {"hypothesis", "click", "rich"},
    "subjects": {"z3", "cvc5", "vllm", "torch", "click", "rich"},
    "hitbound": {"vllm", "torch"},
}

FILES = [path for package in MAY_IMPORT for path in sorted((CHECKOUT / package).rglob("*.py"))]


def imported(source: str) -> Iterator[str]:
    """Top-level names of everything that `source` imports, inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield (node.module or "").partition(".")[0]


def wrong_imports(package: str, source: str) -> set[str]:
    """What a file of `package` imports although it must not."""
    names = set(imported(source))
    wrong = (names & MAY_IMPORT.keys()) - MAY_IMPORT[package]
    wrong |= names & FORBIDDEN[package]
    if package == "model":
        wrong |= names - {"model", "attrs"} - sys.stdlib_module_names
    return wrong


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_imports_only_go_down(path: Path) -> None:
    package = path.relative_to(CHECKOUT).parts[0]
    assert not wrong_imports(package, path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("model", "import properties"),
        ("model", "def later():\n    from hypothesis import strategies"),
        ("model", "import cattrs.strategies"),
        ("properties", "import z3"),
        ("properties", "from solver.prove import prove"),
        ("solver", "from hitbound.gate import check"),
        ("subjects", "import solver"),
        ("hitbound", "import vllm"),
    ],
)
def test_a_wrong_import_is_seen(package: str, source: str) -> None:
    assert wrong_imports(package, source)


def test_every_package_is_typed_and_says_what_it_is() -> None:
    for package in MAY_IMPORT:
        assert (CHECKOUT / package / "py.typed").is_file()
        assert ast.get_docstring(ast.parse((CHECKOUT / package / "__init__.py").read_text(encoding="utf-8")))
