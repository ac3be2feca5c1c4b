"""What the source of a policy must not contain, because it would silently treat a symbolic value unlike an int.

Everything else that cannot be made symbolic refuses by itself when it is executed (`solver/symbolic.py`). These
constructs do not: they yield False, or text, and go on. They are looked for in every function that a policy's parts
execute, helpers included, before its first line runs.
"""

from __future__ import annotations

import ast
import enum
import functools
import linecache
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any

import attrs

IDENTITY = "compare numbers with ==, truth values with `if` or `not`"


@attrs.frozen
class Restriction:
    """In line `line` the construct `what` is not allowed; `advice` says what to write instead."""

    line: int
    what: str
    advice: str


def restriction_in(code: CodeType, namespace: Mapping[str, Any]) -> Restriction | None:
    """The first forbidden construct in the lines of `code`, if any. `namespace` are the globals of its function."""
    lines = {line for _, _, line in code.co_lines() if line is not None}
    linecache.checkcache(code.co_filename)
    for found, operands in _constructs("".join(linecache.getlines(code.co_filename))):
        if found.line in lines and not any(_is_singleton(operand, namespace) for operand in operands):
            return found
    return None


@functools.lru_cache(maxsize=64)
def _constructs(source: str) -> tuple[tuple[Restriction, tuple[ast.expr, ...]], ...]:
    """Forbidden constructs of a file; one with operands is allowed if an operand is a singleton."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return ()
    return tuple(_visit(tree, in_message=False))


def _visit(node: ast.AST, in_message: bool) -> Iterator[tuple[Restriction, tuple[ast.expr, ...]]]:
    match node:
        case ast.Compare(left=left, ops=operators, comparators=comparators):
            operands = (left, *comparators)
            for number, operator in enumerate(operators):
                if isinstance(operator, ast.Is | ast.IsNot):
                    yield Restriction(node.lineno, "`is`", IDENTITY), (operands[number], operands[number + 1])
        case ast.MatchSingleton(value=bool()):
            yield Restriction(node.lineno, "`case True` or `case False`", "use `if`"), ()
        case ast.Call(func=ast.Name(id="type" | "id" | "repr" | "str" | "format" | "callable" as name)):
            if not in_message or name == "type":
                yield Restriction(node.lineno, f"{name}()", "the parts of a policy receive ints and bools only"), ()
        case ast.JoinedStr() if not in_message:
            yield Restriction(node.lineno, "an f-string", "use it in the message of a raise or an assert only"), ()
        case ast.ExceptHandler(type=None | ast.Name(id="BaseException")):
            yield Restriction(node.lineno, "catching every exception", "name the exceptions that are meant"), ()
    in_message = in_message or isinstance(node, (ast.Raise, ast.Assert))
    for child in ast.iter_child_nodes(node):
        yield from _visit(child, in_message)


def _is_singleton(operand: ast.expr, namespace: Mapping[str, Any]) -> bool:
    """Whether the operand of an `is` is None or a member of an enum, which are never symbolic."""
    match operand:
        case ast.Constant(value=None):
            return True
        case ast.Name() | ast.Attribute():
            return isinstance(_value_of(operand, namespace), enum.Enum)
    return False


def _value_of(expression: ast.expr, namespace: Mapping[str, Any]) -> Any:
    match expression:
        case ast.Name(id=name):
            return namespace.get(name)
        case ast.Attribute(value=value, attr=attribute):
            return getattr(_value_of(value, namespace), attribute, None)
    return None
