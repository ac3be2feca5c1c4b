"""An admission as SVG: what `hitbound/picture.py` draws in text, to scale, for pages and documents.

The image is readable without colour (each role has a shape and a mark of its own), follows the reader's dark or light
theme, and says the same in words for those who do not see it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from hitbound.connector_tree import tree_lines
from hitbound.picture import CACHED, HIT, LOADED, WRONG, Column, Lane, in_words, lanes_of
from model.admission import Admission, Decision
from model.geometry import columns_for
from model.policy import Policy
from model.system import Observation

CLASSES = {HIT: "hit", CACHED: "cached", LOADED: "loaded", WRONG: "wrong"}
WORDS = {HIT: "local hit", CACHED: "cached, not used", LOADED: "loaded", WRONG: "read, and not what is needed"}
"""Role of a block -> its class in the style sheet, and what the legend calls it."""

STYLE = """
.hitbound { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --faint: #6b7280; --hit: #1a7f37;
  --loaded: #0969da; --wrong: #cf222e; font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
@media (prefers-color-scheme: dark) { .hitbound { --ink: #e6edf3; --paper: #0d1117; --faint: #9198a1; --hit: #3fb950;
  --loaded: #58a6ff; --wrong: #ff7b72; } }
.hitbound text { fill: var(--ink); }
.hitbound .paper { fill: var(--paper); }
.hitbound .ruler, .hitbound .cached { stroke: var(--faint); fill: none; }
.hitbound .cached { stroke-dasharray: 4 3; }
.hitbound .hit { stroke: var(--hit); fill: none; stroke-width: 2; }
.hitbound .loaded { stroke: var(--loaded); fill: none; stroke-width: 2; stroke-dasharray: 2 2; }
.hitbound .wrong { stroke: var(--wrong); fill: none; stroke-width: 3; }
.hitbound .boundary { stroke: var(--ink); stroke-width: 1.5; }
.hitbound .state { fill: var(--paper); }
.hitbound .external { fill: var(--loaded); opacity: 0.15; }
"""

WIDEST = 760
"""Pixels of a ruler, at most as far as its labels allow."""
NARROWEST = 46
"""Pixels of a hash unit, at least."""
LANE = 40
"""Pixels from one lane to the next."""
LETTER = 8
"""Pixels of a character, about."""
MARGIN = 16


def admission_svg(policy: Policy, observation: Observation, admission: Admission, name: str) -> str:
    """The text of an SVG element; ids in it begin with `name`."""
    decision = admission.decision
    configuration = observation.after.configuration
    lanes = lanes_of(observation, admission)
    unit = configuration.hash_block
    count = columns_for(len(decision.prefix), unit)
    pixels = max(NARROWEST, min(WIDEST // max(count, 1), 3 * NARROWEST))
    left = MARGIN + LETTER * (max(len(lane.name) for lane in lanes) + 1)
    tree = tree_lines(policy, configuration.connector, admission) if configuration.connector else []
    foot = MARGIN + 60 + LANE * len(lanes)
    texts = [_legend(lanes), *tree]
    width = max(left + count * pixels + 5 * MARGIN, MARGIN + LETTER * (max(map(len, texts)) + 1))
    height = foot + 40 + 18 * len(texts) + MARGIN
    svg = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "class": "hitbound",
            "viewBox": f"0 0 {width} {height}",
            "width": str(width),
            "height": str(height),
            "role": "img",
            "aria-labelledby": f"{name}-title {name}-words",
        },
    )
    _text_element(svg, "title", _title(decision), id=f"{name}-title")
    _text_element(svg, "desc", "; ".join(map(in_words, lanes)), id=f"{name}-words")
    SubElement(svg, "style").text = STYLE
    SubElement(svg, "rect", {"class": "paper", "width": "100%", "height": "100%"})
    scale = _Scale(left, pixels, unit)
    _ruler(svg, scale, count, MARGIN + 18)
    _external(svg, scale, decision, MARGIN + 24, foot - 4)
    _boundaries(svg, scale, decision, MARGIN + 24, foot)
    for number, lane in enumerate(lanes):
        _lane(svg, scale, lane, MARGIN + 56 + LANE * number)
    for number, line in enumerate(texts):
        _write(svg, MARGIN, foot + 44 + 18 * number, line)
    return ElementTree.tostring(svg, encoding="unicode")


class _Scale:
    """From tokens to pixels."""

    def __init__(self, left: int, pixels: int, unit: int) -> None:
        self.left, self.pixels, self.unit = left, pixels, unit

    def x(self, tokens: int) -> float:
        return self.left + tokens * self.pixels / self.unit


def _title(decision: Decision) -> str:
    return (
        f"{decision.request}: L = {decision.local}, E = {decision.external}, R = {decision.resume} "
        f"of N = {len(decision.prefix)} tokens"
    )


def _legend(lanes: Sequence[Lane]) -> str:
    seen = {column.brackets for lane in lanes for column in lane.columns}
    marks = [f"{brackets[0]}n{brackets[1]} {words}" for brackets, words in WORDS.items() if brackets in seen]
    return "; ".join([*marks, "* recurrent state, at its boundary"])


def _ruler(svg: Element, scale: _Scale, count: int, y: float) -> None:
    _write(svg, MARGIN, y, "tokens")
    end = scale.x(count * scale.unit)
    SubElement(svg, "path", {"class": "ruler", "d": f"M{scale.left} {y + 8}H{end}"})
    for position in range(count + 1):
        x = scale.x(position * scale.unit)
        SubElement(svg, "path", {"class": "ruler", "d": f"M{x} {y + 4}v8"})
        _write(svg, x, y, str(position * scale.unit), anchor="middle")


def _external(svg: Element, scale: _Scale, decision: Decision, top: float, bottom: float) -> None:
    """The tokens [L, R) that the connector brings."""
    if decision.external:
        x = scale.x(decision.local)
        width = scale.x(decision.resume) - x
        where = {"x": str(x), "y": str(top), "width": str(width), "height": str(bottom - top)}
        SubElement(svg, "rect", {"class": "external", **where})


def _lane(svg: Element, scale: _Scale, lane: Lane, y: float) -> None:
    _write(svg, MARGIN, y + 5, lane.name)
    for column in lane.columns:
        kind = CLASSES[column.brackets]
        text = f"{column.brackets[0]}{'*' if lane.group.recurrent else ''}{column.block}{column.brackets[1]}"
        middle = (
            _recurrent(svg, scale, column, kind, y) if lane.group.recurrent else _attention(svg, scale, column, kind, y)
        )
        _write(svg, middle, y + 5, text, anchor="middle")


def _attention(svg: Element, scale: _Scale, column: Column, kind: str, y: float) -> float:
    """Attention fills its column."""
    left, right = scale.x(column.start) + 2, scale.x(column.end) - 2
    size = {"x": str(left), "y": str(y - 13), "width": str(right - left), "height": "26", "rx": "3"}
    SubElement(svg, "rect", {"class": kind, **size})
    return (left + right) / 2


def _recurrent(svg: Element, scale: _Scale, column: Column, kind: str, y: float) -> float:
    """A recurrent state stands at the boundary that it is the state of."""
    x = scale.x(column.end)
    half = LETTER * (len(str(column.block)) + 3) / 2 + 3
    size = {"x": str(x - half), "y": str(y - 13), "width": str(2 * half), "height": "26", "rx": "13"}
    SubElement(svg, "rect", {"class": f"{kind} state", **size})
    return x


def _boundaries(svg: Element, scale: _Scale, decision: Decision, top: float, bottom: float) -> None:
    for boundary, text, row in _marks(decision):
        x = scale.x(boundary)
        SubElement(svg, "path", {"class": "boundary", "d": f"M{x} {top}V{bottom + 4 + 14 * row}"})
        _write(svg, x + 4, bottom + 10 + 14 * row, text)


def _marks(decision: Decision) -> Iterator[tuple[int, str, int]]:
    """Boundary, text and row below the lanes."""
    if decision.external == 0:
        yield decision.local, f"L = R = {decision.local}", 0
    else:
        yield decision.local, f"L = {decision.local}", 0
        yield decision.resume, f"R = {decision.resume}, the resume boundary", 1


def _write(svg: Element, x: float, y: float, text: str, anchor: str = "start") -> None:
    _text_element(svg, "text", text, x=str(x), y=str(y), **{"text-anchor": anchor, "xml:space": "preserve"})


def _text_element(svg: Element, tag: str, text: str, **attributes: str) -> None:
    SubElement(svg, tag, attributes).text = text
