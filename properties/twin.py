"""The numeric twin of the worker: the same plans on the numbers of a toy model, with no notion of right content.

Its outputs differ from those of a run without a cache exactly when the shadow memory has flagged a bad read; that is
how the shadow memory itself is checked. Nothing here is shared with `model/memory.py` or `model/worker.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import attrs

from model.configuration import Configuration, Group, WorkerOrder
from model.connector import StateRestored
from model.geometry import column_ending_at
from model.internal_checkpoint import stored_by
from model.peer import PeerRules, moves
from model.plan import Chunk, Load, Save, StepPlan, Table
from model.pool import Label
from model.rules.states import LeftOut
from properties.toy_model import (
    START,
    Attended,
    Attention,
    Pair,
    attentions,
    cache_free_run,
    lower_kv,
    lower_state,
    mix,
    output,
    upper_kv,
    upper_state,
)

WIPED: Pair = (mix(101), mix(102))
"""In every cell of a block into which nothing was written since it was taken."""
MEDDLED: Pair = (mix(103), mix(104))
"""What a leaf writes that was told to load nothing."""

Outputs = dict[str, tuple[int, ...]]
"""Per request the outputs for the tokens of its chunk."""


@attrs.frozen
class TwinRequest:
    """One request on the twin."""

    tables: tuple[Table, ...]
    running_column: int | None = None
    behind: int = 0
    """Columns from the running one to that of the last accepted draft, whose state the next chunk starts from."""


@attrs.frozen
class TwinState:
    """Numbers by block and cell. A token's KV takes one cell of a block, a recurrent state all of them. Stored objects
    are blocks outside the pool, by leaf and key."""

    cells: tuple[tuple[Pair, ...], ...]
    requests: Mapping[str, TwinRequest] = attrs.Factory(dict)
    objects: Mapping[tuple[str, Label], tuple[tuple[Pair, ...], ...]] = attrs.Factory(dict)


def new_twin(configuration: Configuration) -> TwinState:
    """A twin with nothing in its blocks. Each block has as many cells as the widest block has tokens."""
    width = max(group.block for group in configuration.groups)
    return TwinState(((WIPED,) * width,) * configuration.pool_blocks)


def execute(configuration: Configuration, state: TwinState, plan: StepPlan) -> tuple[TwinState, Outputs]:
    """Execute one step on the numbers."""
    blocks = _Blocks(state)
    for block in plan.taken:
        blocks.fill(block, WIPED)
    for cells, destination in [(blocks.copy(copy.source), copy.destination) for copy in plan.copies]:
        blocks.paste(destination, cells)
    requests = {name: request for name, request in state.requests.items() if name not in plan.dropped}
    for chunk in plan.chunks:
        if chunk.starts:
            requests[chunk.request] = TwinRequest(chunk.new_blocks)
        else:
            request = requests[chunk.request]
            tables = tuple(old + new for old, new in zip(request.tables, chunk.new_blocks, strict=True))
            requests[chunk.request] = attrs.evolve(request, tables=tables)
    if configuration.release.left_out is LeftOut.FORGOTTEN:
        for name in requests.keys() - {chunk.request for chunk in plan.chunks}:
            requests[name] = attrs.evolve(requests[name], behind=0)
    runs = [_Run(configuration, blocks, chunk, requests[chunk.request]) for chunk in plan.chunks]
    loads = [load for load in plan.loads if not load.asynchronous]
    if configuration.worker_order is WorkerOrder.LOAD_BEFORE_COPY:
        _restore(configuration, blocks, loads, state.objects)
        _copy_states(blocks, runs)
    else:
        _copy_states(blocks, runs)
        _restore(configuration, blocks, loads, state.objects)
    for run in runs:
        run.start()
    for run in runs:
        run.write_lower_kv()
    for run in runs:
        run.attend_lower()
    for position in sorted({position for run in runs for position in run.positions}):
        for run in runs:
            if position in run.positions:
                run.run_upper(position)
    for run in runs:
        run.write_states()
        behind = run.keep_accepted()
        ended = attrs.evolve(requests[run.chunk.request], running_column=run.ending_column, behind=behind)
        requests[run.chunk.request] = ended
    outputs = {run.chunk.request: tuple(run.outputs) for run in runs}
    return attrs.evolve(state, cells=blocks.frozen(), requests=requests), outputs


def save(state: TwinState, saves: Collection[Save]) -> TwinState:
    """Blocks are copied out to where no object is yet."""
    if not saves:
        return state
    objects = dict(state.objects)
    for each in saves:
        objects.setdefault((each.leaf, each.label), tuple(state.cells[block] for block in each.blocks))
    return attrs.evolve(state, objects=objects)


def forget(state: TwinState, keys: Collection[tuple[str, Label]]) -> TwinState:
    """Only the objects with `keys` are left."""
    return attrs.evolve(state, objects={key: cells for key, cells in state.objects.items() if key in keys})


def end_load(configuration: Configuration, state: TwinState, load: Load, succeeded: bool) -> TwinState:
    """An asynchronous load ends on the numbers."""
    blocks = _Blocks(state)
    _restore(configuration, blocks, [attrs.evolve(load, fails=not succeeded)], state.objects)
    return attrs.evolve(state, cells=blocks.frozen())


def cache_free_output(configuration: Configuration, chunk: Chunk) -> tuple[int, ...]:
    """What the chunk would put out if there were no cache."""
    return tuple(cache_free_run(configuration.groups, chunk.prefix[: chunk.end]).outputs[chunk.computed :])


def disagreement(
    configuration: Configuration, plan: StepPlan, outputs: Outputs, flagged: Collection[str]
) -> tuple[str, ...]:
    """Where twin and shadow memory disagree about a step, one line each. `flagged` are the requests with a bad read."""
    lines: list[str] = []
    for chunk in plan.chunks:
        differs = outputs[chunk.request] != cache_free_output(configuration, chunk)
        if differs != (chunk.request in flagged):
            lines.append(
                f"{chunk.request} [{chunk.computed}, {chunk.end}): the twin's output "
                f"{'differs' if differs else 'is that of a cache-free run'}, "
                f"the shadow memory flagged {'no' if differs else 'a'} bad read"
            )
    return tuple(lines)


class _Blocks:
    """The cells during a step."""

    def __init__(self, state: TwinState) -> None:
        self._cells = [list(cells) for cells in state.cells]

    def frozen(self) -> tuple[tuple[Pair, ...], ...]:
        return tuple(tuple(cells) for cells in self._cells)

    def fill(self, block: int, pair: Pair) -> None:
        self.paste(block, [pair] * len(self._cells[block]))

    def copy(self, block: int) -> list[Pair]:
        return list(self._cells[block])

    def paste(self, block: int, cells: list[Pair]) -> None:
        if block:
            self._cells[block] = list(cells)

    def read_cell(self, block: int, cell: int) -> Pair:
        return self._cells[block][cell]

    def write_cell(self, block: int, cell: int, pair: Pair) -> None:
        if block:
            self._cells[block][cell] = pair

    def read_state(self, block: int) -> Pair:
        """All cells make the state: if some were overwritten it is another one."""
        cells = self._cells[block]
        if all(cell == cells[0] for cell in cells):
            return cells[0]
        return mix(*(lower for lower, _ in cells)), mix(*(upper for _, upper in cells))


class _Run:
    """One chunk on its way through the toy model."""

    def __init__(self, configuration: Configuration, blocks: _Blocks, chunk: Chunk, request: TwinRequest) -> None:
        self.blocks = blocks
        self.chunk = chunk
        self.request = request
        self.positions = range(chunk.computed, chunk.end)
        self.outputs: list[int] = []
        self.recurrent = {index: group for index, group in enumerate(configuration.groups) if group.recurrent}
        self.attention = {index: group for index, group in enumerate(configuration.groups) if not group.recurrent}
        self.lower = attentions(configuration.groups)
        self.upper = attentions(configuration.groups)
        self.lower_states: dict[int, list[int]] = {}
        self.upper_states: dict[int, int] = {}
        self.written: dict[int, dict[int, Pair]] = {index: {} for index in self.recurrent}
        self.resume_block = configuration.resume_block
        block = configuration.mamba_block or 1
        ends = configuration.written_states(chunk.computed, chunk.end)
        self.columns = {boundary: column_ending_at(boundary, block) for boundary in ends}
        self.stored = stored_by(configuration, chunk)
        if self.stored is not None:
            self.columns[self.stored.boundary] = self.stored.column
        if chunk.drafts:
            last = column_ending_at(chunk.end, block)
            self.columns = {chunk.end - chunk.drafts + row: last + row for row in range(1 + chunk.drafts)}
        self.attended_lower: list[tuple[int, ...]] = []

    @property
    def ending_column(self) -> int | None:
        """Column of the state after the chunk; Mamba groups share a block size."""
        return next((column_ending_at(self.chunk.end, group.block) for group in self.recurrent.values()), None)

    def state_moves(self) -> Iterator[tuple[int, int]]:
        """(from block, to block) of each state that the chunk needs in another column."""
        if self.chunk.computed == 0 or self.resume_block is None:
            return
        for index, group in self.recurrent.items():
            source = self.request.running_column
            if source is None:
                source = column_ending_at(self.chunk.computed, self.resume_block)
            destination = column_ending_at(self.chunk.end, group.block)
            if source != destination:
                yield self._block(index, source + self.request.behind), self._block(index, destination)

    def start(self) -> None:
        """Read the states the chunk starts from, and run the lower recurrence."""
        for index in self.recurrent:
            state = self._read_state(index)[0]
            self.lower_states[index] = []
            for position in self.positions:
                state = lower_state(index, state, self.chunk.prefix[position])
                self.lower_states[index].append(state)

    def write_lower_kv(self) -> None:
        for position in self.positions:
            states = tuple(states[position - self.chunk.computed] for states in self.lower_states.values())
            for index in self.attention:
                lower = lower_kv(index, self.chunk.prefix[position], states)
                self._write_kv(index, position, (lower, self._read_kv(index, position)[1]))

    def attend_lower(self) -> None:
        """Read the lower KV that each token sees, its own included."""
        self._see_computed(self.lower, 0)
        for position in self.positions:
            for index, layer in self.lower.items():
                layer.see(position, self._read_kv(index, position)[0])
            self.attended_lower.append(tuple(layer.read(position) for layer in self.lower.values()))

    def run_upper(self, position: int) -> None:
        """The upper layer for one token, and its output. All chunks of a step proceed token by token together, so that
        what one of them writes wrongly reaches all that read it in this step, however long the chain."""
        if position == self.chunk.computed:
            self._see_computed(self.upper, 1)
            self.upper_states = {index: self._read_state(index)[1] for index in self.recurrent}
        attended = Attended(
            self.attended_lower[position - self.chunk.computed],
            tuple(layer.read(position) for layer in self.upper.values()),
        )
        for index, before in self.upper_states.items():
            self.upper_states[index] = upper_state(index, before, self.chunk.prefix[position], attended)
            if position + 1 in self.columns:
                lower = self.lower_states[index][position - self.chunk.computed]
                self.written[index][position + 1] = (lower, self.upper_states[index])
        states = tuple(self.upper_states.values())
        for index, layer in self.upper.items():
            number = upper_kv(index, states, attended)
            self._write_kv(index, position, (self._read_kv(index, position)[0], number))
            layer.see(position, self._read_kv(index, position)[1])
        self.outputs.append(output(states, attended))

    def write_states(self) -> None:
        for index, written in self.written.items():
            # A checkpoint is stored last.
            last = None if self.stored is None else self.stored.boundary
            for boundary, state in sorted(written.items(), key=lambda each: each[0] == last):
                self.blocks.fill(self._block(index, self.columns[boundary]), state)

    def keep_accepted(self) -> int:
        """Copy the state at the last block boundary among those that drafts left to the column that ends there. Returns
        how many columns behind the running one the last accepted state stays."""
        chunk, behind = self.chunk, self.chunk.drafts - self.chunk.rejected
        if not chunk.drafts:
            return 0
        for index, group in self.recurrent.items():
            reached = chunk.settled // group.block * group.block
            source = self.columns.get(reached)
            if source is None:
                continue
            destination = reached // group.block - 1
            self.blocks.paste(self._block(index, destination), self.blocks.copy(self._block(index, source)))
            if destination == self.ending_column:
                behind = 0
        return behind

    def _see_computed(self, layers: Mapping[int, Attention], level: int) -> None:
        for index, layer in layers.items():
            for position in range(self.attention[index].sees_from(self.chunk.computed), self.chunk.computed):
                layer.see(position, self._read_kv(index, position)[level])

    def _read_state(self, group: int) -> Pair:
        if self.chunk.computed == 0:
            return START
        column = column_ending_at(self.chunk.end, self.recurrent[group].block)
        if column == self.request.running_column:
            column += self.request.behind
        return self.blocks.read_state(self._block(group, column))

    def _read_kv(self, group: int, position: int) -> Pair:
        block = self.attention[group].block
        return self.blocks.read_cell(self._block(group, position // block), position % block)

    def _write_kv(self, group: int, position: int, pair: Pair) -> None:
        if position < self.chunk.computed + self.chunk.rerun:
            return
        block = self.attention[group].block
        self.blocks.write_cell(self._block(group, position // block), position % block, pair)

    def _block(self, group: int, column: int) -> int:
        table = self.request.tables[group]
        return table[column] if column < len(table) else 0


def _copy_states(blocks: _Blocks, runs: list[_Run]) -> None:
    moves = [(blocks.copy(source), destination) for run in runs for source, destination in run.state_moves()]
    for cells, destination in moves:
        blocks.paste(destination, cells)


def _restore(
    configuration: Configuration,
    blocks: _Blocks,
    loads: list[Load],
    objects: Mapping[tuple[str, Label], tuple[tuple[Pair, ...], ...]],
) -> None:
    """Put the true numbers where the conduct of each leaf restores them, or copy what a store has; uninvited leaves
    come last."""
    for load in sorted(loads, key=lambda load: not load.assigned):
        conduct = load.leaf.conduct
        if load.fails:
            continue
        if load.leaf.store is not None:
            failed = {load.tables[index][column] for index, column in load.failed_blocks}
            for fetch in load.fetches:
                if fetch.block not in failed:
                    blocks.paste(fetch.block, list(objects[load.leaf.name, fetch.label][-1 - fetch.from_end]))
            continue
        if load.leaf.peer is not None:
            _transfer(configuration, blocks, load, load.leaf.peer)
            continue
        for index, group in enumerate(configuration.groups):
            if index in conduct.omitted_groups:
                continue
            if load.assigned:
                _restore_group(configuration, blocks, load, index, group)
            elif conduct.writes_unassigned:
                for column in load.columns(index, group):
                    blocks.fill(load.tables[index][column], MEDDLED)


def _transfer(configuration: Configuration, blocks: _Blocks, load: Load, rules: PeerRules) -> None:
    """Copy the numbers that a peer has: of its columns of KV, and its last state."""
    if not load.assigned:
        return
    truth = cache_free_run(configuration.groups, load.prefix[: load.held])
    for index, (group, table) in enumerate(zip(configuration.groups, load.tables, strict=True)):
        if group.recurrent:
            column = column_ending_at(load.end, group.block)
            if (index, column) not in load.failed_blocks:
                blocks.fill(table[column], truth.states[index][load.held])
            continue
        for remote, column in moves(rules, load.held, group.block, load.columns(index, group)):
            if (index, column) in load.failed_blocks:
                continue
            if remote != column:
                blocks.fill(table[column], WIPED)
            for position in range(remote * group.block, min(load.held, (remote + 1) * group.block)):
                blocks.write_cell(table[column], position % group.block, truth.kv[index][position])


def _restore_group(configuration: Configuration, blocks: _Blocks, load: Load, index: int, group: Group) -> None:
    truth = cache_free_run(configuration.groups, load.prefix[: load.end])
    conduct, table = load.leaf.conduct, load.tables[index]
    if group.recurrent:
        restored = {StateRestored.NEVER: False, StateRestored.IF_BACKED: load.backed, StateRestored.ALWAYS: True}
        column = column_ending_at(load.end, group.block)
        if restored[conduct.state] and (index, column) not in load.failed_blocks:
            blocks.fill(table[column], truth.states[index][load.end])
        return
    start = min(load.start, load.local[index]) if conduct.lagging_attention else load.start
    for position in range(start, load.end):
        if (index, position // group.block) in load.failed_blocks:
            continue
        blocks.write_cell(table[position // group.block], position % group.block, truth.kv[index][position])
