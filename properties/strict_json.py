"""Strict JSON for documents that people write by hand: exact types, no unknown keys, errors that name the key."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import attrs
from cattrs import Converter, IterableValidationError, IterableValidationNote, transform_error
from cattrs.errors import ForbiddenExtraKeysError

from model.errors import HitboundError

T = TypeVar("T")

MOST_PROBLEMS = 5
"""Wrong keys that one message names."""

_KINDS: dict[type, str] = {
    bool: "a boolean",
    int: "an integer",
    float: "a fraction",
    str: "a string",
    list: "a list",
    dict: "an object",
}


class DocumentError(HitboundError):
    """A JSON document that cannot be read; the message names each offending key and what to do."""


class Mismatch(TypeError):
    """A JSON value that is not what its place in the document needs; its text is the explanation."""


def kind_of(value: object) -> str:
    """What JSON calls `value`, with an article."""
    return "null" if value is None else _KINDS.get(type(value), type(value).__name__)


def parse(text: str) -> Any:
    """The JSON value of `text`, without duplicate keys, NaN and infinities; raises DocumentError."""
    try:
        return json.loads(text, object_pairs_hook=_refuse_duplicate_keys, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise DocumentError(
            f"line {error.lineno}, column {error.colno}: not JSON ({error.msg}); is the file cut off?"
        ) from None
    except RecursionError:
        raise DocumentError("nested too deeply to be read; flatten it") from None


def read_text(path: Path) -> str:
    """The text of the file `path`; raises DocumentError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DocumentError(f"cannot be read ({error.strerror}); name a file that exists") from None
    except UnicodeDecodeError as error:
        raise DocumentError(f"byte {error.start} is not UTF-8; this must be JSON text in UTF-8") from None


def write_text(text: str, path: Path) -> None:
    """Write `text` to the file `path`, whole or not at all; raises OSError."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.chmod(0o644)  # mkstemp lets only the owner read
        temporary.replace(path)
    except BaseException:
        temporary.unlink()
        raise


def layout(value: object, width: int = 110, indent: str = "") -> str:
    """JSON text in which a value that fits on a line of `width` characters stays on it, so that a diff reads well."""
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or not value or (indent and len(indent) + len(flat) <= width):
        return flat
    inner = indent + "  "
    if isinstance(value, dict):
        items = [f"{json.dumps(key, ensure_ascii=False)}: {layout(item, width, inner)}" for key, item in value.items()]
    else:
        items = [layout(item, width, inner) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n" + ",\n".join(inner + item for item in items) + f"\n{indent}{closing}"


def make_converter() -> Converter:
    """A converter of attrs values that takes exactly what it writes; values equal to their default are left out."""
    converter = Converter(forbid_extra_keys=True, omit_if_default=True)
    for kind in (int, str, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook_func(lambda of: of == dict[str, Any], _exactly(dict))
    converter.register_structure_hook_factory(attrs.has, _object_hook)
    converter.register_structure_hook_factory(_is_tuple, _list_hook)
    converter.register_structure_hook_factory(
        lambda of: isinstance(of, type) and issubclass(of, Enum),
        lambda of: enum_hook({str(member.value): member for member in of}),
    )
    return converter


def structure(value: object, of: type[T], converter: Converter) -> T:
    """`value` as an `of`; raises DocumentError with the path of each offending key."""
    try:
        return converter.structure(value, of)
    except Exception as error:
        if isinstance(error, RecursionError) or (isinstance(error, ExceptionGroup) and error.subgroup(RecursionError)):
            raise DocumentError("nested too deeply to be read; flatten it") from None
        problems = [_path_first(problem) for problem in transform_error(error, "$", _explain)]
    shown = problems[:MOST_PROBLEMS]
    more = [f"and {len(problems) - len(shown)} more"] if len(problems) > len(shown) else []
    raise DocumentError("; ".join(shown + more))


def enum_hook(names: Mapping[str, Enum]) -> Callable[[object, object], Enum]:
    """A structure hook for an enum whose members are written as `names` says."""

    def structure_enum(value: object, _: object) -> Enum:
        if not isinstance(value, str) or value not in names:
            raise Mismatch(f"expected one of {', '.join(names)}, got {json.dumps(value)}")
        return names[value]

    return structure_enum


def _refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DocumentError(f"the key {json.dumps(twice)} occurs twice in one object; keep one of them")
    return found


def _refuse_constant(text: str) -> None:
    raise DocumentError(f"{text} is not a JSON number; write an integer")


def _exactly(kind: type) -> Callable[[object, object], Any]:
    def structure_exactly(value: object, _: object) -> Any:
        if type(value) is not kind:
            raise Mismatch(f"expected {kind_of(kind())}, got {kind_of(value)}")
        return value

    return structure_exactly


def _object_hook(of: type, converter: Converter) -> Callable[[object, type], Any]:
    from_dict: Callable[[dict[str, Any], type], Any] = converter.gen_structure_attrs_fromdict(of)

    def structure_object(value: object, of: type) -> Any:
        if not isinstance(value, dict):
            raise Mismatch(f"expected an object, got {kind_of(value)}")
        return from_dict(value, of)

    return structure_object


def _is_tuple(of: Any) -> bool:
    return issubclass(get_origin(of) or object, tuple)


def _list_hook(of: type, converter: Converter) -> Callable[[object, object], tuple[Any, ...]]:
    item = get_args(of)[0]

    def structure_list(value: object, _: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise Mismatch(f"expected a list, got {kind_of(value)}")
        structured: list[Any] = []
        errors: list[Exception] = []
        for index, element in enumerate(value):
            try:
                structured.append(converter.structure(element, item))
            except Exception as error:
                error.add_note(IterableValidationNote(f"item {index}", index, item))
                errors.append(error)
        if errors:
            raise IterableValidationError("in a list", errors, of)
        return tuple(structured)

    return structure_list


def _explain(error: BaseException, expected: type | None) -> str:
    if isinstance(error, ForbiddenExtraKeysError):
        keys = ", ".join(json.dumps(key) for key in sorted(error.extra_fields))
        allowed = ", ".join(field.name for field in attrs.fields(error.cl))
        return f"unknown key {keys}; remove it, or correct its spelling: the keys here are {allowed}"
    if isinstance(error, KeyError):
        return "this key is missing; add it"
    if isinstance(error, Mismatch | HitboundError):
        return str(error)
    return f"not a valid {getattr(expected, '__name__', expected)} ({error})"


def _path_first(message: str) -> str:
    """`transform_error` writes "message @ path"; people look for the place first."""
    text, _, path = message.rpartition(" @ ")
    return f"{path}: {text}"
