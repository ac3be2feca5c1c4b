"""A state of the model between two steps as a picture: who holds which block where, and what else is cached."""

from __future__ import annotations

from collections.abc import Iterator

from hitbound.picture import CACHED, HIT, LOADED, MOST_NARROW, Column, draw_lane, lane_name
from model.configuration import Group
from model.geometry import column_ending_at, columns_for
from model.memory import UNWRITTEN
from model.pool import NULL_BLOCK
from model.request import Request, Status
from model.system import System
from model.tokens import Prefix, begins

HELD = "||"

STATE_LEGEND = (
    "[n] block n is held here and cached, |n| held and not cached, {n} being loaded, (n) cached for these tokens, and "
    "held by nobody; *: a recurrent state, drawn at its boundary"
)


def state_picture(system: System) -> list[str]:
    """A lane for each group of each request that was admitted, and for what is cached beside."""
    groups = system.configuration.groups
    lanes = [
        (f"{request.name}: {lane_name(index, group)}", group, tuple(_columns(system, request, index)))
        for request in system.scheduler.requests.values()
        for index, group in enumerate(groups)
    ]
    for prefix in _cached_beside(system):
        for index, group in enumerate(groups):
            columns = tuple(_beside(system, prefix, index))
            if columns:
                lanes.append((f"cached: {lane_name(index, group)}", group, columns))
    if not lanes:
        return ["nothing is cached, and no request was admitted"]
    unit = system.configuration.hash_block
    count = max(columns_for(columns[-1].end, unit) for _, _, columns in lanes if columns)
    margin = max(len(name) for name, _, _ in lanes) + 2
    ruler = "".join(str(position * unit).ljust(MOST_NARROW) for position in range(count + 1)).rstrip()
    drawn = (
        (name.ljust(margin) + draw_lane(group, columns, MOST_NARROW, unit)).rstrip() for name, group, columns in lanes
    )
    return ["tokens".ljust(margin) + ruler, *drawn, *_requests(system)]


def _columns(system: System, request: Request, index: int) -> Iterator[Column]:
    group, table = system.configuration.groups[index], request.tables[index]
    loaded = {
        column for load in request.loads for column in load.columns(index, group) if request.status is Status.LOADING
    }
    for column, block in enumerate(table):
        if block != NULL_BLOCK:
            cached = system.scheduler.pool.labels[block] is not None
            brackets = LOADED if column in loaded else HIT if cached else HELD
            yield _column(group, column, block, brackets, request.computed)


def _column(group: Group, column: int, block: int, brackets: str, boundary: int) -> Column:
    start, end = column * group.block, (column + 1) * group.block
    return Column(start, min(end, max(boundary, start + 1)) if group.recurrent else end, block, brackets)


def _cached_beside(system: System) -> list[Prefix]:
    """The longest prefixes that something is cached for which no request holds."""
    pool = system.scheduler.pool
    found = {label.prefix for label, blocks in pool.cached.items() if any(not pool.refs[block] for block in blocks)}
    return sorted(one for one in found if not any(begins(one, other) and one != other for other in found))


def _beside(system: System, prefix: Prefix, index: int) -> Iterator[Column]:
    pool, group = system.scheduler.pool, system.configuration.groups[index]
    for label, blocks in sorted(pool.cached.items(), key=lambda item: len(item[0].prefix)):
        if label.group == index and begins(label.prefix, prefix):
            for block in blocks:
                if not pool.refs[block]:
                    column = column_ending_at(len(label.prefix), group.block)
                    yield _column(group, column, block, CACHED, len(label.prefix))


def _requests(system: System) -> Iterator[str]:
    for request in system.scheduler.requests.values():
        yield f"{request.name} is {request.status.value.replace('_', ' ')}, {request.computed} tokens computed"
    empty = [
        block
        for block, refs in enumerate(system.scheduler.pool.refs)
        if refs and system.worker.memory.read(block) == UNWRITTEN
    ]
    if empty:
        yield f"held, and nothing in it: block {', '.join(map(str, empty))}"
