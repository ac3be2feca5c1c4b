"""Traces as versioned JSON documents: what `hitbound replay` reads and what a violated result carries.

`trace.schema.json` beside this file describes the shape to other tools. What equals its default is left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cattrs import Converter

from model.actions import (
    Abort,
    Action,
    Arrive,
    Drain,
    EndLoad,
    EndSaves,
    Evict,
    EvictObject,
    Execute,
    Preempt,
    Reset,
    Schedule,
    Step,
)
from model.connector import Composite, Connector, Contract, Leaf
from model.tokens import Segment
from model.trace import Trace
from properties import strict_json
from properties.strict_json import DocumentError, Mismatch, kind_of

FORMAT = "hitbound-trace"
VERSION = 1
SCHEMA = f"{FORMAT}/{VERSION}"
SCHEMA_FILE = Path(__file__).with_name("trace.schema.json")

ACTION_NAMES: dict[str, type[Action]] = {
    "arrive": Arrive,
    "step": Step,
    "schedule": Schedule,
    "execute": Execute,
    "drain": Drain,
    "evict": Evict,
    "evict_object": EvictObject,
    "end_load": EndLoad,
    "end_saves": EndSaves,
    "abort": Abort,
    "preempt": Preempt,
    "reset": Reset,
}
"""What each action is called under the key `do`."""


class TraceDocumentError(DocumentError):
    """A trace document that cannot be read: malformed, cut off, of a newer version, or with a wrong or unknown key."""


def trace_to_document(trace: Trace) -> dict[str, Any]:
    """The JSON value of `trace`."""
    return {"schema": SCHEMA, **CONVERTER.unstructure(trace)}


def trace_from_document(document: object) -> Trace:
    """The trace that a JSON value describes; raises TraceDocumentError."""
    if not isinstance(document, dict):
        raise TraceDocumentError(f"$: expected an object, got {kind_of(document)}; is this a trace document?")
    _check_version(document.get("schema"))
    body = {key: value for key, value in document.items() if key != "schema"}
    try:
        return strict_json.structure(body, Trace, CONVERTER)
    except DocumentError as error:
        raise TraceDocumentError(str(error)) from None


def dump_trace(trace: Trace) -> str:
    """The text of the document of `trace`."""
    return strict_json.layout(trace_to_document(trace)) + "\n"


def load_trace(text: str) -> Trace:
    """The trace that `text` describes; raises TraceDocumentError."""
    try:
        document = strict_json.parse(text)
    except DocumentError as error:
        raise TraceDocumentError(str(error)) from None
    return trace_from_document(document)


def read_trace(path: Path) -> Trace:
    """The trace in the file `path`; raises TraceDocumentError, which names the file."""
    try:
        return load_trace(strict_json.read_text(path))
    except DocumentError as error:
        raise TraceDocumentError(f"{path}: {error}") from None


def write_trace(trace: Trace, path: Path) -> None:
    """Write the document of `trace` to the file `path`, whole or not at all; raises OSError."""
    strict_json.write_text(dump_trace(trace), path)


def _check_version(schema: object) -> None:
    if schema == SCHEMA:
        return
    name, _, version = schema.partition("/") if isinstance(schema, str) else ("", "", "")
    if name == FORMAT and version.isdecimal() and int(version) > VERSION:
        raise TraceDocumentError(
            f"$.schema: {schema} is newer than {SCHEMA}, the newest that this hitbound reads; upgrade hitbound"
        )
    raise TraceDocumentError(f'$.schema: expected "{SCHEMA}", got {json.dumps(schema)}; is this a trace document?')


def _structure_segment(value: object, _: object) -> Segment:
    match value:
        case [str(text), int(length)] if not isinstance(length, bool):
            return Segment(text, length)
    raise Mismatch(f'expected a text and a number of its tokens, as in ["x", 64], got {json.dumps(value)}')


def _add_connectors(converter: Converter) -> None:
    """A composite is told from a leaf by its key `children`."""

    def structure(value: object, _: object) -> Connector:
        if not isinstance(value, dict):
            raise Mismatch(f"expected a leaf or a composite, got {kind_of(value)}")
        if "children" in value:
            return converter.structure(value, Composite)
        return converter.structure(value, Leaf)

    def structure_optional(value: object, of: object) -> Connector | None:
        return None if value is None else structure(value, of)

    converter.register_structure_hook(Connector, structure)
    converter.register_structure_hook(Connector | None, structure_optional)
    for union in (Connector, Connector | None):
        converter.register_unstructure_hook(union, lambda value: converter.unstructure(value))


def _add_actions(converter: Converter) -> None:
    """An action is an object whose key `do` tells which."""
    names = {kind: name for name, kind in ACTION_NAMES.items()}

    def structure(value: object, _: object) -> Action:
        if not isinstance(value, dict):
            raise Mismatch(f"expected an action, got {kind_of(value)}")
        do = value.get("do")
        if not isinstance(do, str) or do not in ACTION_NAMES:
            raise Mismatch(f'"do" is {json.dumps(do)}; expected one of {", ".join(ACTION_NAMES)}')
        return converter.structure({key: value[key] for key in value if key != "do"}, ACTION_NAMES[do])

    converter.register_structure_hook(Action, structure)
    converter.register_unstructure_hook(
        Action, lambda action: {"do": names[type(action)], **converter.unstructure(action)}
    )


def _make_converter() -> Converter:
    converter = strict_json.make_converter()
    converter.register_structure_hook(
        Contract, strict_json.enum_hook({member.name.lower(): member for member in Contract})
    )
    converter.register_unstructure_hook(Contract, lambda contract: contract.name.lower())
    converter.register_structure_hook(Segment, _structure_segment)
    converter.register_unstructure_hook(Segment, lambda segment: [segment.text, segment.length])
    _add_connectors(converter)
    _add_actions(converter)
    return converter


CONVERTER = _make_converter()
"""Reads and writes the values of traces."""
