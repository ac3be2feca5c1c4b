"""A trace step by step, as values for a page: what happened, and what the cache then looks like."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from hitbound import step_text
from hitbound.drawing import admission_svg
from hitbound.trace_text import tells
from model.plan import Load, Table
from model.policy import Policy
from model.pool import NULL_BLOCK
from model.request import Request
from model.system import Observation, System
from model.tokens import begins
from model.trace import Trace
from properties import wording
from properties.replay import Replay, replay


@attrs.frozen
class BlockView:
    """One block. `label` says for which prefix it is cached, `holds` what the shadow memory knows it to hold."""

    number: int
    references: int
    label: str
    holds: str
    wrong: bool


@attrs.frozen
class TableView:
    """The block table of one group of a request, column by column."""

    group: str
    blocks: tuple[BlockView, ...]


@attrs.frozen
class RequestView:
    """One request and its block tables. Tokens: `computed` of `known`."""

    name: str
    status: str
    computed: int
    known: int
    tables: tuple[TableView, ...]


@attrs.frozen
class StepView:
    """One action: what it was, what it changed, its admissions drawn, and the state after it.

    `lines` are pairs of indentation and text. `cached` are the blocks that a hash reaches, by group. `free` is the free
    queue, the next to be taken first.
    """

    number: int
    title: str
    lines: tuple[tuple[int, str], ...]
    drawings: tuple[str, ...]
    requests: tuple[RequestView, ...]
    cached: tuple[TableView, ...]
    loads: tuple[str, ...]
    free: str
    violations: tuple[str, ...]


@attrs.frozen
class TraceView:
    """A trace under a policy."""

    configuration: str
    steps: tuple[StepView, ...]


def trace_view(trace: Trace, policy: Policy, name: str) -> TraceView:
    """The steps of a trace under a policy; ids in its drawings begin with `name`."""
    replayed = replay(trace, policy)
    steps = tuple(
        _step(policy, replayed, number, observations, f"{name}-step-{number}")
        for number, observations in enumerate(step_text.by_action(replayed.observations), 1)
    )
    return TraceView(step_text.configuration_line(trace.configuration), steps)


def _step(policy: Policy, replayed: Replay, number: int, observations: tuple[Observation, ...], name: str) -> StepView:
    after = observations[-1].after
    wrong = frozenset(read.block for seen in observations if seen.execution for read in seen.execution.bad_reads)
    drawn = [
        (observation, admission)
        for observation in observations
        for admission in observation.admissions
        if tells(admission)
    ]
    return StepView(
        number=number,
        title=step_text.title_of(observations),
        lines=tuple((len(line) - len(line.lstrip()), line.lstrip()) for line in step_text.changes_of(observations)),
        drawings=tuple(
            admission_svg(policy, observation, admission, f"{name}-{index}")
            for index, (observation, admission) in enumerate(drawn, 1)
        ),
        requests=(
            *(_request(after, request, wrong) for request in after.scheduler.requests.values()),
            *_gone(observations, wrong),
        ),
        cached=tuple(_cached(after, wrong)),
        loads=tuple(_load(load) for request in after.scheduler.requests.values() for load in request.loads),
        free=_runs(tuple(after.scheduler.pool.free)),
        violations=tuple(
            f"{violation.property}: {violation.message}"
            for violation in replayed.violations
            if violation.action == number - 1
        ),
    )


def _request(system: System, request: Request, wrong: frozenset[int]) -> RequestView:
    tables = _tables(system, request.tables, wrong)
    return RequestView(request.name, request.status.value, request.computed, len(request.tokens), tables)


def _gone(observations: tuple[Observation, ...], wrong: frozenset[int]) -> Iterator[RequestView]:
    """Requests that were admitted in this action and have ended in it, with the tables they were admitted with."""
    after = observations[-1].after
    chunks = [chunk for seen in observations if seen.plan for chunk in seen.plan.chunks]
    for chunk in chunks:
        if chunk.starts and chunk.request not in after.scheduler.requests:
            tables = _tables(after, chunk.new_blocks, wrong)
            yield RequestView(chunk.request, "finished", chunk.end, len(chunk.prefix), tables)


def _tables(system: System, tables: tuple[Table, ...], wrong: frozenset[int]) -> tuple[TableView, ...]:
    return tuple(
        TableView(wording.group_name(system.configuration, group), tuple(_block(system, b, wrong) for b in table))
        for group, table in enumerate(tables)
    )


def _runs(blocks: tuple[int, ...]) -> str:
    """The queue with ascending runs in short: "4-9 2 1"."""
    runs: list[list[int]] = []
    for block in blocks:
        if runs and runs[-1][-1] == block - 1:
            runs[-1].append(block)
        else:
            runs.append([block])
    return " ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else " ".join(map(str, run)) for run in runs)


def _cached(system: System, wrong: frozenset[int]) -> Iterator[TableView]:
    labels = system.scheduler.pool.labels
    for group in range(len(system.configuration.groups)):
        blocks = [block for block, label in enumerate(labels) if label is not None and label.group == group]
        ordered = sorted(blocks, key=lambda block: len(label.prefix) if (label := labels[block]) else 0)
        yield TableView(
            wording.group_name(system.configuration, group), tuple(_block(system, block, wrong) for block in ordered)
        )


def _block(system: System, block: int, wrong: frozenset[int]) -> BlockView:
    if block == NULL_BLOCK:
        return BlockView(NULL_BLOCK, 0, "", "the null block", block in wrong)
    pool = system.scheduler.pool
    label = pool.labels[block]
    cached_for = ""
    if label is not None:
        owner = next(name for name, text in system.texts.items() if begins(label.prefix, text))
        cached_for = f"{len(label.prefix)} of {owner}"
    holds = wording.content(system.worker.memory.read(block), label.prefix if label else ())
    return BlockView(block, pool.refs[block], cached_for, holds, block in wrong)


def _load(load: Load) -> str:
    return f"{load.leaf.name} loads [{load.start}, {load.end}) of {load.request}, asynchronously"
