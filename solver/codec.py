"""States as packed small integers, one a byte, and back: what a search stores and compares.

A code leaves out what no later action and no property can tell apart. Each omission and why it is sound:

- What counts chunks and output in flight (`placeholders`, `in_flight`, `stale`, `drop_stale`): one step is in flight,
  and only within an action. A `Scope` refuses more.
- Requests that have ended: their worker mirrors, `dropped` and the order of `requests`. The worker looks up a mirror
  only for a chunk that continues, and a request that continues has been running since its mirror was made.
- The mirror of a running request follows from its tables and from `computed`: they agree wherever the scheduler has
  not nulled a column (OWN-EXCLUSIVE), and the worker reads no column that the scheduler may null. Checked when
  encoding.
- The content of a cached block is what its label promises (STATE-LABEL). Checked when encoding.
- The content of a block that is free and not cached: it is wiped when it is taken, and nobody finds it before.
- How often a leaf was asked, beyond the end of its script: the last answer repeats.
- The loads of a request whose load has ended: they were executed.
- Stores, their objects, and which peers were used, and reports of loads that were assigned to others: there are none, a
  scope with such leaves is refused.
- Drafts, and where the last accepted one left the state: there are none, a scope with drafts is refused.
- The junction of a request that has passed it, or that will be looked up before it runs: the lookup sets it anew.

With `sort_blocks`, blocks are renamed in the order in which tables and then the free queue mention them: the model
compares block ids only for equality, so states that differ in names have the same future, up to names.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from model.connector import leaves_of
from model.geometry import column_ending_at
from model.memory import UNWRITTEN, Content, Memory
from model.plan import Load, Table
from model.pool import NULL_BLOCK, Label, Pool
from model.request import Request, Status
from model.scheduler import Scheduler
from model.system import System
from model.tokens import Prefix, tokens_of
from model.worker import Mirror, Worker
from properties.invariants.content import promised
from solver.scope import Scope, ScopeError

Code = bytes

TO_COME, GONE, LIVE = 0, 1, 2
"""What a code says of each request first."""

_STATUSES = tuple(Status)
_LOADING = (Status.LOADING, Status.ABORTED_LOADING)
_KEEP_JUNCTION = (Status.WAITING, Status.RUNNING, Status.LOADING, Status.LOADED)
_MOST_SYMBOLS = 255
_MOST_RECORDS = 65_535
_MOST_REMEMBERED = 10_000


@attrs.frozen
class Cached:
    """A block that is cached for `label`; `age` older blocks have the same label."""

    label: Label
    age: int = 0


class CodecFault(Exception):
    """The codec's assumptions are wrong, and no verdict can be given."""


class NotEncodable(Exception):
    """A state that contradicts what a code leaves out; on the way there a property must have been violated."""


@attrs.frozen
class Record:
    """A live request without the names of its blocks. `shape` says per group which columns are not null; `loads` are
    (leaf, start, end, local, backed, assigned) of those under way."""

    request: int
    status: Status
    computed: int
    known: int
    asked: tuple[int, ...]
    hit_withdrawn: bool = False
    published: tuple[int, ...] = ()
    shape: tuple[tuple[bool, ...], ...] = ()
    loads: tuple[tuple[int, int, int, tuple[int, ...], bool, bool], ...] = ()
    junction: int = 0


@attrs.frozen
class _Segment:
    """A live request with its blocks, decoded once and shared by all states that contain it."""

    request: Request
    mirror: Mirror | None
    blocks: tuple[int, ...]


class Codec:
    """Codes of the states of one scope. Symbols and records are numbered as they are met, so codes of two codecs
    compare only if both met them in the same order."""

    def __init__(self, scope: Scope, *, sort_blocks: bool) -> None:
        configuration = scope.configuration
        self.scope = scope
        self.sort_blocks = sort_blocks
        self.names = tuple(arrival.request for arrival in scope.arrivals)
        self.texts = scope.texts
        self.symbols: list[Cached | Content] = []
        self.aged: set[int] = set()
        """Symbols of blocks that are not the oldest with their label."""
        self.records: list[Record] = []
        self.held: list[int] = []
        """Table entries with a block, by number of the record."""
        self._configuration = configuration
        self._leaves = () if configuration.connector is None else tuple(leaves_of(configuration.connector))
        self._index = {name: number for number, name in enumerate(self.names)}
        self.prompts = tuple(len(tokens_of(arrival.prompt)) for arrival in scope.arrivals)
        self._answers = tuple({said.leaf: said.answers for said in arrival.answers} for arrival in scope.arrivals)
        self._most_asked = tuple(
            tuple(max(1, len(answers.get(leaf.name, ())) - 1) for leaf in self._leaves) for answers in self._answers
        )
        self._symbol_of: dict[Cached | Content, int] = {}
        self._record_of: dict[Record, int] = {}
        self._segments: dict[bytes, _Segment] = {}
        self._segment_of: dict[int, tuple[Request, bytes]] = {}
        self._tails: dict[
            tuple[int, bytes], tuple[tuple[Label | None, ...], Memory, tuple[int, ...], dict[Label, Table]]
        ] = {}
        self.symbol(UNWRITTEN)
        for text in sorted(set(self.texts)):
            for group, spec in enumerate(configuration.groups):
                for end in range(spec.block, len(text) + 1, spec.block):
                    self.symbol(Cached(Label(group, text[:end])))

    def symbol(self, value: Cached | Content) -> int:
        """Number of what a block is cached for or, if it is not cached, holds; 0 for nothing."""
        number = self._symbol_of.get(value)
        if number is None:
            number = len(self.symbols)
            if number > _MOST_SYMBOLS:
                raise ScopeError(
                    f"scope {self.scope.name}: more than {_MOST_SYMBOLS} block contents; shorten its prompts"
                )
            self.symbols.append(value)
            if isinstance(value, Cached) and value.age:
                self.aged.add(number)
            self._symbol_of[value] = number
        return number

    def record(self, record: Record) -> int:
        """Number of a record."""
        number = self._record_of.get(record)
        if number is None:
            number = len(self.records)
            if number > _MOST_RECORDS:
                raise ScopeError(
                    f"scope {self.scope.name}: more than {_MOST_RECORDS} request states; use fewer requests"
                )
            self.records.append(record)
            self._record_of[record] = number
            self.held.append(sum(map(sum, record.shape)))
        return number

    def records_of(self, code: Code) -> tuple[Record, ...]:
        """Records of the live requests, in the order of the queues."""
        position, records = len(self.names) + 3, []
        for _ in range(code[: len(self.names)].count(LIVE)):
            number = code[position] << 8 | code[position + 1]
            records.append(self.records[number])
            position += 2 + self.held[number]
        return tuple(records)

    # --- encoding -------------------------------------------------------------------------------------------------

    def encode(self, system: System) -> Code:
        """The code of a state of this scope. Raises NotEncodable."""
        scheduler = system.scheduler
        pool, requests = scheduler.pool, scheduler.requests
        if system.assertion or pool.taken or scheduler.in_flight:
            raise NotEncodable("an assertion failed, steps are in flight, or blocks are taken that no step has wiped")
        code = bytearray(LIVE if name in requests else GONE if name in system.texts else TO_COME for name in self.names)
        queue = (*scheduler.running, *scheduler.waiting, *scheduler.skipped)
        code += bytes((len(scheduler.running), len(scheduler.waiting), len(scheduler.skipped)))
        if len(queue) < len(requests):
            queue += tuple(sorted((name for name in requests if name not in queue), key=self._index.__getitem__))
        segments = [self._encoded_request(system, requests[name]) for name in queue]
        references = [0] * len(pool.refs)
        order: list[int] = []
        for segment in segments:
            for block in segment[2:]:
                if not references[block]:
                    order.append(block)
                references[block] += 1
        order += pool.free
        if tuple(references) != pool.refs or len(order) != len(references) - 1:
            raise NotEncodable("references are not those of the tables, or a block is neither free nor referenced")
        new_name = list(range(len(references)))
        if self.sort_blocks:
            for position, block in enumerate(order, 1):
                new_name[block] = position
            renamed = bytes(new_name) + bytes(256 - len(new_name))
            for segment in segments:
                code += segment[:2] + segment[2:].translate(renamed)
        else:
            order = new_name[1:]
            for segment in segments:
                code += segment
        code += bytes(self._encoded_blocks(system, order))
        if not self.sort_blocks:
            code += bytes(pool.free)
        return bytes(code)

    def _encoded_request(self, system: System, request: Request) -> bytes:
        known = self._segment_of.get(id(request))
        if known is not None and known[0] is request:
            segment = known[1]
            if request.status is Status.RUNNING:
                mirror = system.worker.mirrors.get(request.name)
                if mirror is not self._segments[segment].mirror:
                    self._check_mirror(request, mirror)
            return segment
        if request.started is not (request.status is Status.RUNNING):
            raise NotEncodable(f"{request.name} is {request.status.value}, started: {request.started}")
        if request.status is Status.RUNNING:
            self._check_mirror(request, system.worker.mirrors.get(request.name))
        index = self._index[request.name]
        number = self.record(
            Record(
                request=index,
                status=request.status,
                computed=request.computed,
                known=len(request.tokens),
                asked=tuple(
                    min(request.asked.get(leaf.name, 0), most)
                    for leaf, most in zip(self._leaves, self._most_asked[index], strict=True)
                ),
                hit_withdrawn=request.hit_withdrawn,
                published=request.published,
                shape=tuple(tuple(map(bool, table)) for table in request.tables),
                loads=tuple(self._under_way(request, load) for load in request.loads)
                if request.status in _LOADING
                else (),
                junction=request.junction
                if request.junction > request.computed and request.status in _KEEP_JUNCTION and request.tables
                else 0,
            )
        )
        return bytes((number >> 8, number & 255, *(block for table in request.tables for block in table if block)))

    def _under_way(self, request: Request, load: Load) -> tuple[int, int, int, tuple[int, ...], bool, bool]:
        if load.tables != request.tables or load.prefix != request.tokens or not load.asynchronous or load.fails:
            raise NotEncodable(f"{request.name} has other blocks than were announced for its load")
        return self._leaves.index(load.leaf), load.start, load.end, load.local, load.backed, load.assigned

    def _check_mirror(self, request: Request, mirror: Mirror | None) -> None:
        if mirror is None or not mirror.sound or mirror.running_column != self._running_column(request.computed):
            raise NotEncodable(
                f"{request.name} runs, and the worker does not know from where, or computed something wrong"
            )
        for group, table in enumerate(request.tables):
            for column, block in enumerate(table):
                if block != NULL_BLOCK and mirror.block(group, column) != block:
                    raise NotEncodable(f"{request.name} has another block for the worker")

    def _running_column(self, computed: int) -> int | None:
        block = self._configuration.mamba_block
        return None if block is None else column_ending_at(computed, block)

    def _encoded_blocks(self, system: System, order: Sequence[int]) -> list[int]:
        pool, contents = system.scheduler.pool, system.worker.memory.blocks
        labels, refs, symbols = pool.labels, pool.refs, self._symbol_of
        encoded: list[int] = []
        for block in order:
            label = labels[block]
            value: Cached | Content
            if label is not None:
                value = Cached(label, pool.cached[label].index(block))
                if not system.worker.memory.holds(block, promised(self._configuration, label)):
                    raise NotEncodable(f"block {block} does not hold what it is cached for")
            elif refs[block]:
                value = contents[block]
            else:
                encoded.append(0)
                continue
            number = symbols.get(value)
            encoded.append(self.symbol(value) if number is None else number)
        return encoded

    # --- decoding -------------------------------------------------------------------------------------------------

    def decode(self, code: Code, pool_blocks: int | None = None) -> System:
        """The state with this code; what a code leaves out is as the module says. `pool_blocks`, the null block
        included, is the configuration's unless given."""
        count = len(self.names)
        if pool_blocks is None:
            pool_blocks = self._configuration.pool_blocks
        phases = code[:count]
        running, waiting, skipped = code[count : count + 3]
        position = count + 3
        requests: dict[str, Request] = {}
        mirrors: dict[str, Mirror] = {}
        refs = [0] * pool_blocks
        for _ in range(phases.count(LIVE)):
            end = position + 2 + self.held[code[position] << 8 | code[position + 1]]
            segment = self._segments.get(code[position:end]) or self._decoded_request(code[position:end])
            request = segment.request
            requests[request.name] = request
            if segment.mirror is not None:
                mirrors[request.name] = segment.mirror
            for block in segment.blocks:
                refs[block] += 1
            position = end
        queue = tuple(requests)
        tail = code[position:]
        labels, memory, free, cached = self._tails.get((pool_blocks, tail)) or self._decoded_tail(tail, pool_blocks)
        if self.sort_blocks:
            free = tuple(range(pool_blocks - refs.count(0) + 1, pool_blocks))
        waits = running + waiting
        scheduler = Scheduler(
            self._configuration,
            Pool(tuple(refs), labels, free, cached),
            requests,
            queue[:running],
            queue[running:waits],
            queue[waits : waits + skipped],
        )
        texts = {name: text for name, text, phase in zip(self.names, self.texts, phases, strict=True) if phase}
        return System(self._configuration, scheduler, Worker(memory, mirrors), texts)

    def _decoded_request(self, segment: bytes) -> _Segment:
        record, blocks = self.records[segment[0] << 8 | segment[1]], tuple(segment[2:])
        text, remaining = self.texts[record.request], iter(blocks)
        tokens = text[: record.known]
        tables = tuple(tuple(next(remaining) if held else NULL_BLOCK for held in columns) for columns in record.shape)
        running = record.status is Status.RUNNING
        request = Request(
            name=self.names[record.request],
            tokens=tokens,
            prompt_length=self.prompts[record.request],
            unsampled=text[record.known :],
            answers=self._answers[record.request],
            skip_reading=self.scope.arrivals[record.request].skip_reading,
            asked={leaf.name: count for leaf, count in zip(self._leaves, record.asked, strict=True) if count},
            status=record.status,
            computed=record.computed,
            tables=tables,
            published=record.published,
            loads=tuple(self._load(record, tokens, tables, load) for load in record.loads),
            started=running,
            hit_withdrawn=record.hit_withdrawn,
            junction=record.junction,
        )
        column = self._running_column(record.computed)
        mirror = Mirror(tables, column, computed=record.computed) if running else None
        if len(self._segments) >= _MOST_REMEMBERED:
            self._segments.clear()
            self._segment_of.clear()
        decoded = self._segments[segment] = _Segment(request, mirror, blocks)
        self._segment_of[id(request)] = request, segment
        return decoded

    def _load(
        self,
        record: Record,
        tokens: Prefix,
        tables: tuple[Table, ...],
        load: tuple[int, int, int, tuple[int, ...], bool, bool],
    ) -> Load:
        leaf, start, end, local, backed, assigned = load
        return Load(
            request=self.names[record.request],
            leaf=self._leaves[leaf],
            prefix=tokens,
            start=start,
            end=end,
            tables=tables,
            local=local,
            backed=backed,
            asynchronous=True,
            assigned=assigned,
        )

    def _decoded_tail(
        self, tail: bytes, blocks: int
    ) -> tuple[tuple[Label | None, ...], Memory, tuple[int, ...], dict[Label, Table]]:
        held = [self.symbols[number] for number in tail[: blocks - 1]]
        labels = (None, *(value.label if isinstance(value, Cached) else None for value in held))
        contents = tuple(
            promised(self._configuration, value.label) if isinstance(value, Cached) else value for value in held
        )
        by_age = sorted((value.age, block) for block, value in enumerate(held, 1) if isinstance(value, Cached))
        cached: dict[Label, Table] = {}
        for _, block in by_age:
            label = labels[block]
            assert label is not None
            cached[label] = (*cached.get(label, ()), block)
        free = tuple(tail[blocks - 1 :])
        if len(self._tails) >= _MOST_REMEMBERED:
            self._tails.clear()
        decoded = self._tails[blocks, tail] = (labels, Memory((UNWRITTEN, *contents)), free, cached)
        return decoded
