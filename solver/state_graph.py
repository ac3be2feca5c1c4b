"""The graph of a small search in the DOT language: a node per state, an edge per action."""

from __future__ import annotations

from collections.abc import Iterator

from model.errors import HitboundError
from model.pool import Label
from solver.codec import GONE, TO_COME, Cached, Code
from solver.search import Search
from solver.successors import Kind

MOST_STATES = 2_000
"""More cannot be laid out by Graphviz in a useful time, nor be read."""


class GraphTooLarge(HitboundError):
    """A search with more states than can be drawn."""


def dot(search: Search) -> str:
    """The text of the graph of all states that were reached. Raises GraphTooLarge."""
    codes = search.reached.codes
    if len(codes) > MOST_STATES:
        raise GraphTooLarge(
            f"scope {search.scope.name} has {len(codes):,} states, a graph at most {MOST_STATES:,}; use a smaller scope"
        )
    return "\n".join((f'digraph "{search.scope.name}" {{', "  node [shape=box];", *_lines(search), "}\n"))


def _lines(search: Search) -> Iterator[str]:
    codes = search.reached.codes
    for code, number in codes.items():
        yield f'  {number} [label="{_state(search, code)}"];'
    for code, number in codes.items():
        for action, after, judged in search.plain.of(code):
            label = _action(search, action)
            if judged.violations:
                label += "\\n" + "\\n".join(sorted({violation.property for violation in judged.violations}))
            colour = ", color=red" if judged.violations else ""
            if after is None:
                yield f'  "{number} {action}" [label="not followed", shape=plaintext];'
                yield f'  {number} -> "{number} {action}" [label="{label}"{colour}];'
                continue
            if search.sorter is not None:
                after, _ = search.sorter.sort(after)
            if after in codes:
                yield f'  {number} -> {codes[after]} [label="{label}"{colour}];'


def _state(search: Search, code: Code) -> str:
    codec = search.codec
    lines = [f"{name} to come" for name, phase in zip(codec.names, code, strict=False) if phase == TO_COME]
    lines += [
        f"{codec.names[record.request]} {record.status.value} {record.computed}/{record.known}"
        for record in codec.records_of(code)
    ]
    lines += [f"{name} ended" for name, phase in zip(codec.names, code, strict=False) if phase == GONE]
    pool = codec.decode(code).scheduler.pool
    cached = [
        _label(label) + ("" if pool.refs[block] == 0 else "*") for block, label in enumerate(pool.labels) if label
    ]
    return "\\n".join((*lines, "cached: " + (" ".join(cached) or "nothing")))


def _label(label: Label) -> str:
    return f"{label.group}:{label.prefix[-1]}"


def _action(search: Search, number: int) -> str:
    codec, kind, argument = search.codec, Kind(number >> 8), number & 255
    name = kind.name.lower().replace("_", " ")
    if kind is Kind.STEP:
        failed = [name for bit, name in enumerate(codec.names) if argument >> bit & 1]
        return f"{name}, {', '.join(failed)} fails" if failed else name
    if kind is Kind.EVICT:
        cached = codec.symbols[argument]
        assert isinstance(cached, Cached)
        return f"{name} {_label(cached.label)}"
    return name if kind in (Kind.PREEMPT, Kind.RESET) else f"{name} {codec.names[argument]}"
