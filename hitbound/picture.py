"""An admission as a picture: a ruler of tokens, one lane per KV cache group, the local hit L and the resume boundary R.

Plain ASCII, so that it survives logs and pipes. On a width that is too narrow, the same in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from hitbound.wrapping import wrapped
from model.admission import Admission, Decision
from model.configuration import Configuration, Group
from model.geometry import columns_for
from model.loading import writes_of
from model.plan import Table
from model.pool import NULL_BLOCK, Label
from model.system import Observation

LEGEND = (
    "[n] local hit in block n, (n) cached in block n but not used, {n} loaded into block n, "
    "!n! read although block n does not hold what is needed; *: a recurrent state, drawn at its boundary"
)

MOST_NARROW = 5
"""Least characters per hash unit."""


HIT, CACHED, LOADED, WRONG = "[]", "()", "{}", "!!"
"""The roles of a block in the picture, by the brackets that it is drawn in."""


@attrs.frozen
class Column:
    """One column of a group's lane: tokens [start, end), the block shown there and the role it plays."""

    start: int
    end: int
    block: int
    brackets: str


@attrs.frozen
class Lane:
    """One KV cache group in the picture: its columns in which there is something to see, from left to right."""

    name: str
    group: Group
    columns: tuple[Column, ...]


def lanes_of(observation: Observation, admission: Admission) -> list[Lane]:
    """The lanes of an admission that `observation` contains."""
    configuration = observation.after.configuration
    return [
        Lane(lane_name(index, group), group, tuple(_columns(configuration, observation, admission, index)))
        for index, group in enumerate(configuration.groups)
    ]


def admission_picture(observation: Observation, admission: Admission, width: int) -> list[str]:
    """The picture of an admission that `observation` contains, at most `width` characters wide where possible."""
    configuration, decision = observation.after.configuration, admission.decision
    lanes = lanes_of(observation, admission)
    unit = configuration.hash_block
    count = columns_for(len(decision.prefix), unit)
    margin = max(len(lane.name) for lane in lanes) + 2
    cell = max(
        len(str(count * unit)) + 1,
        *(len(block_text(lane.group, column)) for lane in lanes for column in lane.columns),
        MOST_NARROW,
    )
    if margin + (count + 1) * cell > width:
        return [part for lane in lanes for part in wrapped(in_words(lane), width)]
    lines = [
        "tokens".ljust(margin) + "".join(str(position * unit).ljust(cell) for position in range(count + 1)).rstrip(),
        " " * margin + ("|" + "-" * (cell - 1)) * count + "|",
    ]
    for lane in lanes:
        lines.append((lane.name.ljust(margin) + draw_lane(lane.group, lane.columns, cell, unit)).rstrip())
    return lines + _marks(decision, margin, cell, unit)


def lane_name(index: int, group: Group) -> str:
    return f"{index} {group.kind.value.replace('_', ' ')}"


def _columns(
    configuration: Configuration, observation: Observation, admission: Admission, index: int
) -> Iterator[Column]:
    """Columns of one group in which there is something to see, from left to right."""
    decision, block = admission.decision, configuration.groups[index].block
    pool, objects = decision.lookup.views[0].pool, observation.before.worker.objects
    table = _table(observation, admission, index)
    loaded = {write.block for load in admission.loads for write in writes_of(configuration, load, objects)}
    reads = observation.execution.bad_reads if observation.execution else ()
    wrong = {
        read.column for read in reads if (read.request, read.group, read.starts) == (decision.request, index, True)
    }
    for column in range(columns_for(len(decision.prefix), block)):
        start, end = column * block, (column + 1) * block
        held = table[column] if column < len(table) else NULL_BLOCK
        cached = pool.find(Label(index, decision.prefix[:end])) if end <= len(decision.prefix) else None
        stated = min(end, max(decision.resume, start + 1)) if configuration.groups[index].recurrent else end
        if column in wrong:
            yield Column(start, stated, held, WRONG)
        elif held in loaded and held != NULL_BLOCK:
            yield Column(start, stated, held, LOADED)
        elif cached is not None:
            yield Column(start, end, cached, HIT if cached == held and end <= decision.reached[index] else CACHED)


def _table(observation: Observation, admission: Admission, index: int) -> Table:
    """The request's table of one group right after the admission."""
    name = admission.decision.request
    if admission.loads:
        return admission.loads[0].tables[index]
    chunks = observation.planned.chunks if observation.planned else ()
    return next((chunk.new_blocks[index] for chunk in chunks if chunk.request == name and chunk.starts), ())


def block_text(group: Group, column: Column) -> str:
    """A block in the brackets of its role; a star marks a recurrent state."""
    opening, closing = column.brackets[0], column.brackets[1]
    return f"{opening}{'*' if group.recurrent else ''}{column.block}{closing}"


def draw_lane(group: Group, columns: Sequence[Column], cell: int, unit: int) -> str:
    """Attention fills its column; a recurrent state stands at the boundary that it is the state of."""
    lane = ""
    for column in columns:
        left, right = column.start * cell // unit, column.end * cell // unit
        text = block_text(group, column)
        if group.recurrent:
            lane = lane.ljust(right + 1 - len(text)) + text
        else:
            lane = lane.ljust(left) + text[0] + text[1:-1].center(right - left - 2) + text[-1]
    return lane


def _marks(decision: Decision, margin: int, cell: int, unit: int) -> list[str]:
    """L and R below the ruler's positions; two lines where they would overlap."""
    if decision.external == 0:
        marks = [(decision.local, f"^ L = R = {decision.local}")]
    else:
        marks = [(decision.local, f"^ L = {decision.local}"), (decision.resume, f"^ R = {decision.resume}")]
    lines = [""]
    for boundary, text in marks:
        position = margin + boundary * cell // unit
        if len(lines[-1]) >= position:
            lines.append("")
        lines[-1] = lines[-1].ljust(position) + text
    return lines


def in_words(lane: Lane) -> str:
    """A lane as a sentence."""

    def blocks(brackets: str) -> str:
        chosen = [column for column in lane.columns if column.brackets == brackets]
        return ", ".join(
            f"{'state@' if lane.group.recurrent else f'{column.start}..'}{column.end} in block {column.block}"
            for column in chosen
        )

    roles = (("hit", HIT), ("cached, not used", CACHED), ("loaded", LOADED), ("read in vain", WRONG))
    parts = [f"{role} {blocks(brackets)}" for role, brackets in roles if blocks(brackets)]
    return f"{lane.name}: {'; '.join(parts) or 'nothing'}"
