"""The worker side, the ground truth: executes step plans on the shadow memory as a GPU worker would.

Mirrors `GPUModelRunner.execute_model` and `preprocess_mamba` (vllm/v1/worker/gpu_model_runner.py, mamba_utils.py; align
mode); what drafts need beside that is in `model/speculation.py`. Order within a step: requests dropped, taken blocks
wiped, partial tails copied (`copy_kv_cache_blocks_inplace`, which reads every source before it writes), tables updated,
recurrent pre-copy and synchronous loads (which of them first: `WorkerOrder`), forward, accepted states copied back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs

from model.configuration import Configuration, Group, WorkerOrder
from model.execution import BadRead, ChunkOutcome, Execution, LostWrite, Reason
from model.geometry import column_ending_at, columns_for, columns_written
from model.internal_checkpoint import stored_by
from model.loading import Objects, write_loads, writes_of
from model.memory import TAINTED, UNWRITTEN, AttentionKV, Content, Memory, RecurrentState, empty_memory
from model.plan import Chunk, Load, Save, StepPlan, Table
from model.pool import NULL_BLOCK
from model.rules.loads import RunnerPosition
from model.rules.states import LeftOut
from model.speculation import accepted_offset, copy_back, draft_states
from model.tokens import UNKNOWN_TOKEN, Prefix
from model.values import evolve


@attrs.frozen(slots=False)
class Mirror:
    """One request as the worker sees it. `running_column` is where its recurrent state is; None before its first chunk.

    The scheduler nulls columns without telling the worker, so old columns may name blocks that others own by now.
    `sound` is false if its last chunk read wrongly; then each later one does, for it reads what that one wrote, and
    `load_failed` says that this began with a load that failed. `computed` is how far it has run, in tokens. The state
    lies `offset` columns behind the running one, for so many drafts of the last chunk were right.
    """

    tables: tuple[Table, ...]
    running_column: int | None = None
    sound: bool = True
    load_failed: bool = False
    computed: int = 0
    offset: int = 0

    def block(self, group: int, column: int) -> int:
        """Block in a column; a column that the table does not have reads as null (tables are padded with zeros)."""
        table = self.tables[group]
        return table[column] if column < len(table) else NULL_BLOCK


@attrs.frozen(slots=False)
class Worker:
    """What the worker keeps between steps; `objects` are those of the connectors that store."""

    memory: Memory
    mirrors: Mapping[str, Mirror] = attrs.Factory(dict)
    objects: Objects = attrs.Factory(dict)


def new_worker(configuration: Configuration) -> Worker:
    """A worker whose memory holds nothing and that knows no requests."""
    return Worker(empty_memory(configuration.pool_blocks))


def as_run(configuration: Configuration, worker: Worker, plan: StepPlan, texts: Mapping[str, Prefix]) -> StepPlan:
    """The plan as the worker runs it: under `RunnerPosition.OWN` a running request goes on where it was. Tokens that no
    request has yet are unknown."""
    if configuration.release.runner_position is RunnerPosition.PLANNED:
        return plan
    chunks: list[Chunk] = []
    for chunk in plan.chunks:
        computed = chunk.computed if chunk.starts else worker.mirrors[chunk.request].computed
        end = computed + chunk.count
        right = end - chunk.rejected
        prefix = (texts[chunk.request] + (UNKNOWN_TOKEN,) * end)[:right] + (UNKNOWN_TOKEN,) * chunk.rejected
        chunks.append(evolve(chunk, computed=computed, prefix=prefix))
    return evolve(plan, chunks=tuple(chunks))


def execute(configuration: Configuration, worker: Worker, plan: StepPlan) -> tuple[Worker, Execution]:
    """Execute one step. Asynchronous loads of the plan write only when they end (`end_load`)."""
    memory = worker.memory.wipe(plan.taken).copy({copy.destination: copy.source for copy in plan.copies})
    mirrors = _left_out(configuration, _updated(worker.mirrors, plan), plan)
    step = _Execution(configuration, memory, mirrors, worker.objects, plan)
    if configuration.worker_order is WorkerOrder.LOAD_BEFORE_COPY:
        step.load()
        step.copy_states()
    else:
        step.copy_states()
        step.load()
    execution = step.forward()
    return evolve(worker, memory=step.memory, mirrors=step.mirrors), execution


def end_load(configuration: Configuration, worker: Worker, load: Load, succeeded: bool) -> Worker:
    """An asynchronous load ends: what its leaf's conduct restores is in memory now; nothing if it did not succeed."""
    ended = evolve(load, fails=not succeeded)
    return evolve(worker, memory=write_loads(configuration, worker.memory, (ended,), worker.objects))


def save(worker: Worker, saves: tuple[Save, ...]) -> Worker:
    """What the blocks hold now is stored. An object that exists already is kept; nothing is in the null block."""
    if not saves:
        return worker
    objects = dict(worker.objects)
    for each in saves:
        objects.setdefault((each.leaf, each.label), tuple(map(worker.memory.read, each.blocks)))
    return evolve(worker, objects=objects)


def writes_in_flight(configuration: Configuration, worker: Worker, plans: Iterable[StepPlan]) -> frozenset[int]:
    """Blocks that are still written when `plans` are executed in turn: by synchronous loads and by chunks."""
    written: set[int] = set()
    mirrors = worker.mirrors
    for plan in plans:
        mirrors = _updated(mirrors, plan)
        written.update(copy.destination for copy in plan.copies)
        written.update(write.block for load in plan.loads for write in writes_of(configuration, load, worker.objects))
        for chunk in plan.chunks:
            written.update(written_by(configuration, mirrors[chunk.request], chunk))
    return frozenset(written)


def written_by(configuration: Configuration, mirror: Mirror, chunk: Chunk) -> set[int]:
    """Blocks that a chunk writes, the null block left out."""
    written = {
        mirror.block(index, column)
        for index, group in enumerate(configuration.groups)
        for column in (*_written_columns(chunk, group), *_stored_column(configuration, chunk, group))
    }
    return written - {NULL_BLOCK}


def _stored_column(configuration: Configuration, chunk: Chunk, group: Group) -> tuple[int, ...]:
    """The column of a checkpoint that the chunk stores if there is a block for it."""
    stored = stored_by(configuration, chunk) if group.recurrent else None
    return () if stored is None else (stored.column,)


def _written_columns(chunk: Chunk, group: Group) -> Iterator[int]:
    yield from columns_written(chunk.computed + chunk.rerun, chunk.end, group.block, group.recurrent)
    if group.recurrent and chunk.drafts:
        yield from (column for _, column in draft_states(chunk, group.block))
        saved = copy_back(chunk, group.block)
        if saved is not None:
            yield saved.destination


def _updated(mirrors: Mapping[str, Mirror], plan: StepPlan) -> dict[str, Mirror]:
    updated = {request: mirror for request, mirror in mirrors.items() if request not in plan.dropped}
    for chunk in plan.chunks:
        if chunk.starts:
            updated[chunk.request] = Mirror(chunk.new_blocks)
        else:
            mirror = updated[chunk.request]
            grown = tuple(old + new for old, new in zip(mirror.tables, chunk.new_blocks, strict=True))
            updated[chunk.request] = evolve(mirror, tables=grown)
    return updated


def _left_out(configuration: Configuration, mirrors: dict[str, Mirror], plan: StepPlan) -> dict[str, Mirror]:
    """What the worker still knows of requests that do not run in the step (see `LeftOut`)."""
    if not configuration.drafts or configuration.release.left_out is LeftOut.REMEMBERED:
        return mirrors
    run = {chunk.request for chunk in plan.chunks}
    return {name: mirror if name in run else evolve(mirror, offset=0) for name, mirror in mirrors.items()}


@attrs.frozen
class _Copy:
    """A recurrent state that was copied to another column before the forward: whence, and what it was."""

    column: int
    block: int
    content: Content


class _Execution:
    """The step under way; memory and mirrors are replaced as it proceeds."""

    def __init__(
        self,
        configuration: Configuration,
        memory: Memory,
        mirrors: dict[str, Mirror],
        objects: Objects,
        plan: StepPlan,
    ) -> None:
        self.configuration = configuration
        self.memory = memory
        self.mirrors = mirrors
        self.objects = objects
        self.plan = plan
        self.synchronous = tuple(load for load in plan.loads if not load.asynchronous)
        self.copies: dict[tuple[str, int], _Copy] = {}
        self.sources = {
            chunk.request: _source_column(configuration, mirrors[chunk.request], chunk) for chunk in plan.chunks
        }
        self.read_before_load: set[int] = set()

    def load(self) -> None:
        """The synchronous loads of the step."""
        destinations = {
            write.block for load in self.synchronous for write in writes_of(self.configuration, load, self.objects)
        }
        self.read_before_load = destinations & {copy.block for copy in self.copies.values()}
        self.memory = write_loads(self.configuration, self.memory, self.synchronous, self.objects)

    def copy_states(self) -> None:
        """Each state moves to the column in which its chunk ends. All sources are read before any copy is written."""
        writes: list[tuple[int, Content]] = []
        for chunk in self.plan.chunks:
            mirror = self.mirrors[chunk.request]
            source = self.sources[chunk.request]
            for group, block in self._recurrent_groups():
                destination = column_ending_at(chunk.end, block)
                if source is None or destination in (source, mirror.running_column):
                    continue
                read = mirror.block(group, source)
                content = self.memory.read(read)
                self.copies[chunk.request, group] = _Copy(source, read, content)
                writes.append((mirror.block(group, destination), content))
        for written, content in writes:
            self.memory = self.memory.write(written, content)

    def forward(self) -> Execution:
        """Attention writes of all chunks, then reads, then recurrent writes. What was computed from a bad read is
        wrong, and so is, in the same step, whatever is computed from it."""
        chunks = self.plan.chunks
        for chunk in chunks:
            for block, written in self._attention_writes(chunk):
                self.memory = self.memory.write(block, written)
        bad_reads = {
            chunk.request: (*self._bad_state_reads(chunk), *self._bad_attention_reads(chunk)) for chunk in chunks
        }
        tainted: set[str] = set()
        while newly := [chunk for chunk in chunks if bad_reads[chunk.request] and chunk.request not in tainted]:
            for chunk in newly:
                tainted.add(chunk.request)
                for block, written in self._attention_writes(chunk):
                    self.memory = self.memory.taint(block, written.group, written.start)
            for chunk in chunks:
                if chunk.request not in tainted:
                    bad_reads[chunk.request] = tuple(self._bad_attention_reads(chunk))
        for chunk in chunks:
            self._end_chunk(chunk, sound=chunk.request not in tainted)
        return Execution(
            chunks=tuple(self._outcome(chunk, sound=chunk.request not in tainted) for chunk in chunks),
            bad_reads=tuple(read for chunk in chunks for read in bad_reads[chunk.request]),
            lost_writes=tuple(write for chunk in chunks for write in self._lost_writes(chunk)),
        )

    def _end_chunk(self, chunk: Chunk, *, sound: bool) -> None:
        mirror = self.mirrors[chunk.request]
        running_column, offset = None, 0
        for group, block in self._recurrent_groups():
            running_column = column_ending_at(chunk.end, block)
            if chunk.drafts:
                self._write_draft_states(chunk, group, block, sound=sound)
                offset = accepted_offset(chunk, block)
                continue
            for boundary in self.configuration.written_states(chunk.computed, chunk.end):
                state = RecurrentState(group, chunk.prefix[:boundary]) if sound else TAINTED
                self.memory = self.memory.write(mirror.block(group, column_ending_at(boundary, block)), state)
            # The convolution's part is stored last, so that in the running block it is what is left.
            stored = stored_by(self.configuration, chunk)
            if stored is not None and mirror.block(group, stored.column) != NULL_BLOCK:
                state = RecurrentState(group, chunk.prefix[: stored.boundary]) if sound else TAINTED
                self.memory = self.memory.write(mirror.block(group, stored.column), state)
        failed = not sound and (self._load_failed(chunk) or (mirror.load_failed and not chunk.starts))
        self.mirrors[chunk.request] = Mirror(mirror.tables, running_column, sound, failed, chunk.settled, offset)

    def _write_draft_states(self, chunk: Chunk, group: int, block: int, *, sound: bool) -> None:
        """A state per row and, once it is known which drafts are right, the copy of one."""
        mirror = self.mirrors[chunk.request]
        for boundary, column in draft_states(chunk, block):
            state = RecurrentState(group, chunk.prefix[:boundary]) if sound else TAINTED
            self.memory = self.memory.write(mirror.block(group, column), state)
        saved = copy_back(chunk, block)
        if saved is not None:
            accepted = self.memory.read(mirror.block(group, saved.source))
            self.memory = self.memory.write(mirror.block(group, saved.destination), accepted)

    def _outcome(self, chunk: Chunk, *, sound: bool) -> ChunkOutcome:
        return ChunkOutcome(
            request=chunk.request,
            computed=chunk.computed,
            end=chunk.settled,
            starts=chunk.starts,
            sound=sound,
            copied=tuple(group for request, group in self.copies if request == chunk.request),
            state_column=self.sources[chunk.request],
            load_failed=self._load_failed(chunk) or self.mirrors[chunk.request].load_failed,
        )

    def _load_failed(self, chunk: Chunk) -> bool:
        loads = (load for load in self.synchronous if load.request == chunk.request)
        return any(load.fails or load.failed_blocks for load in loads)

    def _bad_state_reads(self, chunk: Chunk) -> Iterator[BadRead]:
        """The state the chunk starts from is read in the column where it ends, or behind that if it was left there by a
        draft; a wrong one was perhaps copied there."""
        if chunk.computed == 0:
            return
        mirror = self.mirrors[chunk.request]
        for group, block in self._recurrent_groups():
            column = column_ending_at(chunk.end, block)
            if column == mirror.running_column:
                column += mirror.offset
            read = mirror.block(group, column)
            needed, found = RecurrentState(group, chunk.prefix[: chunk.computed]), self.memory.read(read)
            if read != NULL_BLOCK and self.memory.holds(read, needed):
                continue
            copy = self.copies.get((chunk.request, group))
            if copy is not None and copy.content == found:
                column, read = copy.column, copy.block
            yield self._bad_read(chunk, column, read, needed, found)

    def _bad_attention_reads(self, chunk: Chunk) -> Iterator[BadRead]:
        """What the first token sees below the chunk, which is the most that any of its tokens sees, and the chunk."""
        mirror = self.mirrors[chunk.request]
        for group, spec in self._attention_groups():
            first, anew = spec.sees_from(chunk.computed), chunk.computed + chunk.rerun
            for start, end in ((first, chunk.computed), (chunk.computed, anew), (anew, chunk.end)):
                for column, needed in _columns_of(chunk, group, spec.block, start, end):
                    read = mirror.block(group, column)
                    if read == NULL_BLOCK or not self.memory.holds(read, needed):
                        yield self._bad_read(chunk, column, read, needed, self.memory.read(read))

    def _bad_read(
        self, chunk: Chunk, column: int, block: int, needed: AttentionKV | RecurrentState, found: Content
    ) -> BadRead:
        if block == NULL_BLOCK:
            reason = Reason.NULL_BLOCK
        elif isinstance(needed, RecurrentState) and block in self.read_before_load:
            reason = Reason.BEFORE_LOAD
        elif found == UNWRITTEN or _missing_slots(needed, found):
            reason = Reason.UNWRITTEN
        else:
            reason = Reason.WRONG_CONTENT
        anew = chunk.computed + chunk.rerun
        return BadRead(chunk.request, needed.group, column, block, needed, found, anew, chunk.starts, reason)

    def _attention_writes(self, chunk: Chunk) -> Iterator[tuple[int, AttentionKV]]:
        mirror = self.mirrors[chunk.request]
        for group, spec in self._attention_groups():
            for column, written in _columns_of(chunk, group, spec.block, chunk.computed + chunk.rerun, chunk.end):
                yield mirror.block(group, column), written

    def _lost_writes(self, chunk: Chunk) -> Iterator[LostWrite]:
        mirror = self.mirrors[chunk.request]
        for group, spec in enumerate(self.configuration.groups):
            for column in dict.fromkeys(_written_columns(chunk, spec)):
                if mirror.block(group, column) == NULL_BLOCK:
                    yield LostWrite(chunk.request, group, column)

    def _recurrent_groups(self) -> Iterable[tuple[int, int]]:
        return ((index, group.block) for index, group in enumerate(self.configuration.groups) if group.recurrent)

    def _attention_groups(self) -> Iterable[tuple[int, Group]]:
        return ((index, group) for index, group in enumerate(self.configuration.groups) if not group.recurrent)


def _source_column(configuration: Configuration, mirror: Mirror, chunk: Chunk) -> int | None:
    """Column from which the state is taken: the running one, or that of `computed` right after an admission; None for a
    chunk that starts without a state."""
    block = configuration.resume_block
    if chunk.computed == 0 or block is None:
        return None
    if mirror.running_column is None:
        return column_ending_at(chunk.computed, block)
    return mirror.running_column + mirror.offset


def _columns_of(chunk: Chunk, group: int, block: int, start: int, end: int) -> Iterator[tuple[int, AttentionKV]]:
    """The tokens [start, end) column by column."""
    for column in range(start // block, columns_for(end, block)):
        first, last = max(start, column * block), min(end, (column + 1) * block)
        if first < last:
            yield column, AttentionKV(group, first, chunk.prefix[:last])


def _missing_slots(needed: AttentionKV | RecurrentState, found: Content) -> bool:
    """Whether `found` is KV of the needed prefix, only not all of it."""
    if not isinstance(needed, AttentionKV) or not isinstance(found, AttentionKV) or found.group != needed.group:
        return False
    shared = min(found.end, needed.end)
    return found.prefix[:shared] == needed.prefix[:shared]
