"""A real connector under a real scheduler: which clauses of a connector's contract it breaks in one run.

The worker of the model runs each step; what blocks hold is carried to the subject's KV caches and, where the connector
has written into them, back. So what a load has brought is judged by what is there once it is said to have ended.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from model import worker as working
from model.actions import Action, Drain, EndLoad, EndSaves, Step
from model.configuration import Configuration, Group
from model.connector import Leaf
from model.geometry import column_ending_at, columns_for
from model.memory import FOREIGN, TAINTED, UNWRITTEN, AttentionKV, Content, Memory, RecurrentState
from model.plan import Load
from model.policy import Policy
from model.pool import NULL_BLOCK
from model.system import Observation
from model.tokens import Prefix
from properties.invariant import Violation
from subjects.engine import SubjectEngine
from subjects.observed import build_arguments
from subjects.process import Failure, SubjectProcess

CONNECTOR = "connector"
"""The name of the one leaf of a trace: the connector that is tested, whatever it is made of."""

PATIENCE = 30
"""Steps after which a request, or a load, of which everything may end should have ended."""

POLLS = 4
"""How often a worker half is asked again in a step in which everything is to end."""

Write = tuple[int, int, list[int]]
"""Block, group and a number per slot, as the driver takes and shows it."""


class Clause(enum.Enum):
    """A clause of the contract, by the property that it is reported as."""

    RANGE = "CONNECTOR-RANGE"
    """It answers no more than N - 1 - L tokens."""
    EXACT = "CONNECTOR-EXACT"
    """Its load brings the attention KV of [L, R) that it answered, in every attention group."""
    PURE = "CONNECTOR-ASK-PURE"
    """Asking has no effect."""
    PIN = "CONNECTOR-PIN"
    """What backs the answer that is used stays until the load ends."""
    UNASSIGNED = "CONNECTOR-UNASSIGNED"
    """It writes into no block that no load of its own is for."""
    COMPLETION = "CONNECTOR-COMPLETION"
    """It reports each asynchronous load once, and no other."""
    BACKED = "CONNECTOR-BACKED"
    """A load brings state@R if every recurrent group held state@L."""
    ENDPOINT = "CONNECTOR-ENDPOINT"
    """A load brings state@R whatever is local."""
    FULL = "CONNECTOR-FULL"
    """A load brings what lagging attention groups lack below L."""


CONTENT = (Clause.EXACT, Clause.BACKED, Clause.ENDPOINT, Clause.FULL)
"""Clauses that what a load has brought decides."""


class Numbers:
    """Prefixes by number: what one slot of a KV cache can hold."""

    def __init__(self, groups: tuple[Group, ...]) -> None:
        self._groups = groups
        self._numbers: dict[Prefix, int] = {}
        self._prefixes: list[Prefix] = []

    def written(self, before: Memory, after: Memory) -> list[Write]:
        """What the caches are told, so that they hold `after` where they held `before`."""
        changed = enumerate(zip(before.blocks, after.blocks, strict=True))
        return [self._write(block, content) for block, (held, content) in changed if held != content]

    def read(self, memory: Memory, changed: Iterable[Write]) -> Memory:
        """`memory` after the connector has changed blocks of the caches."""
        found: dict[int, Content] = {}
        for block, group, numbers in changed:
            content = self._content(group, numbers)
            if content != UNWRITTEN or block not in found:
                found[block] = content
        for block, content in found.items():
            memory = memory.replace(block, content)
        return memory

    def _write(self, block: int, content: Content) -> Write:
        match content:
            case AttentionKV():
                size = self._groups[content.group].block
                numbers = [0] * size
                for position in range(content.start, content.end):
                    numbers[position % size] = self._number(content.prefix[: position + 1])
                return block, content.group, numbers
            case RecurrentState():
                return block, content.group, [self._number(content.prefix)]
        return block, -1, []

    def _content(self, group: int, numbers: list[int]) -> Content:
        """What a block holds that has these numbers: the last slots that belong together."""
        if not any(numbers):
            return UNWRITTEN
        if any(not 0 <= number <= len(self._prefixes) for number in numbers):
            return TAINTED
        last = max(slot for slot, number in enumerate(numbers) if number)
        prefix = self._prefixes[numbers[last] - 1]
        if self._groups[group].recurrent:
            return RecurrentState(group, prefix)
        end = len(prefix)
        if (end - 1) % self._groups[group].block != last:
            return TAINTED
        start = end
        while end - start <= last and numbers[last - (end - start)] == self._numbers.get(prefix[:start]):
            start -= 1
        return AttentionKV(group, start, prefix)

    def _number(self, prefix: Prefix) -> int:
        if prefix not in self._numbers:
            self._prefixes.append(prefix)
            self._numbers[prefix] = len(self._prefixes)
        return self._numbers[prefix]


@attrs.define
class Lacking:
    """What a load was to bring for a clause, and did not."""

    clause: Clause
    message: str


def due(configuration: Configuration, load: Load) -> Iterator[tuple[Clause, int, int, AttentionKV | RecurrentState]]:
    """Everything that a load of [L, R) has to bring so that the request can go on at R: for which clause, and in which
    group and column."""
    for index, group in enumerate(configuration.groups):
        if group.recurrent:
            clause = Clause.BACKED if load.backed else Clause.ENDPOINT
            yield clause, index, column_ending_at(load.end, group.block), RecurrentState(index, load.prefix[: load.end])
            continue
        seen = group.sees_from(load.end)
        for clause, start, end in (
            (Clause.FULL, max(seen, min(load.local[index], load.start)), load.start),
            (Clause.EXACT, max(seen, load.start), load.end),
        ):
            for column in range(start // group.block, columns_for(end, group.block)):
                first, last = max(start, column * group.block), min(end, (column + 1) * group.block)
                if first < last:
                    yield clause, index, column, AttentionKV(index, first, load.prefix[:last])


def lacking(configuration: Configuration, load: Load, memory: Memory) -> Iterator[Lacking]:
    """The first thing of each clause that a load which is said to have ended has not brought."""
    said: set[Clause] = set()
    for clause, index, column, needed in due(configuration, load):
        table = load.tables[index]
        block = table[column] if column < len(table) else NULL_BLOCK
        if clause in said or (block != NULL_BLOCK and memory.holds(block, needed)):
            continue
        said.add(clause)
        yield Lacking(
            clause, f"{_interval(load)}, but {_wanted(needed)} is not in group {index}: {_held(memory, block)}"
        )


def _interval(load: Load) -> str:
    return f"the load of {load.request} for L = {load.start}, R = {load.end} has ended"


def _wanted(needed: AttentionKV | RecurrentState) -> str:
    if isinstance(needed, RecurrentState):
        return f"state@{len(needed.prefix)}"
    return f"the attention KV of [{needed.start}, {needed.end})"


def _held(memory: Memory, block: int) -> str:
    if block == NULL_BLOCK:
        return "its column has no block"
    match memory.read(block):
        case RecurrentState() as state:
            return f"block {block} holds a state after {len(state.prefix)} tokens"
        case AttentionKV() as kv:
            return f"block {block} holds [{kv.start}, {kv.end})"
    return f"block {block} holds nothing"


@attrs.define
class Run:
    """What one trace showed."""

    refused: Failure | None = None
    """Why there is no run."""
    lost: Failure | None = None
    """How the process ended, or did not answer, in the middle of it."""
    claims: bool = False
    seen: bool = False
    """Whether what its loads bring is seen."""
    worker_half: str = ""
    observations: list[Observation] = attrs.Factory(list)
    violations: list[Violation] = attrs.Factory(list)
    exercised: Counter[Clause] = attrs.Factory(Counter)
    said: list[dict[str, Any]] = attrs.Factory(list)
    """Everything that the connector said and did, step by step; another run of the trace can be compared."""
    failed_loads: int = 0


class ConnectorEngine(SubjectEngine):
    """One run of a real scheduler with a real connector. The only leaf of the configuration stands for the connector:
    if it claims, lookups that may diverge are offered; if its store is asynchronous or delayed, loads or saves end when
    the trace says so, else at once."""

    def __init__(
        self,
        configuration: Configuration,
        policy: Policy,
        process: SubjectProcess,
        tested: dict[str, Any],
        times_asked: int,
    ) -> None:
        super().__init__(configuration, policy, process)
        leaf = configuration.connector
        assert isinstance(leaf, Leaf)
        assert leaf.store is not None
        self.run = Run()
        self._leaf, self._store, self._tested, self._times_asked = leaf, leaf.store, tested, times_asked
        self._numbers = Numbers(configuration.groups)
        self._active: dict[str, Load] = {}
        self._announced: dict[str, set[int]] = {}
        self._ended: dict[str, bool] = {}
        """Loads that the trace lets end, and whether they succeed."""
        self._reported: list[str] = []
        """Loads that the connector reports as ended and the trace does not let end yet."""
        self._synchronous: tuple[Load, ...] = ()
        """Those of the step under way."""
        self._saves_end = False
        self._waited: Counter[str] = Counter()
        self._disturbed: set[str] = set()
        """Requests during whose load the connector had to do with others too."""

    def build(self) -> Failure | None:
        bare = attrs.evolve(self.system.configuration, connector=None)
        arguments = build_arguments(bare) | {"connector": {}}
        reply = self.process.ask(
            "build",
            tested=self._tested,
            offers_divergence=self._leaf.claims,
            times_asked=self._times_asked,
            **arguments,
        )
        if isinstance(reply, Failure):
            return reply
        self.run.claims, self.run.seen, self.run.worker_half = reply["claims"], reply["seen"], reply["worker"]
        return None

    def act(self, action: Action) -> Observation | Failure:
        match action:
            case EndLoad():
                self._ended[action.request] = action.succeeded
            case EndSaves():
                self._saves_end = True
            case Step():
                return self._step(action, everything_ends=False)
            case Drain():
                return self._step(action, everything_ends=True)
            case _:
                return super().act(action)
        return Observation(action, self.system, self.system)

    def is_idle(self) -> bool:
        """Whether nothing is left to be done or to end."""
        return not self.system.scheduler.requests and not self._active

    def _step(self, action: Step | Drain, *, everything_ends: bool) -> Observation | Failure:
        texts, before = dict(self.system.texts), self.system
        reply = self.reply = self.process.ask("schedule", budget=action.budget)
        if isinstance(reply, Failure):
            self._judge_answers_before(reply)
            return reply
        step = reply["step"]
        observation = self._scheduled(action, reply, texts)
        plan = self.in_flight.pop(0).plan
        self._synchronous = plan.loads
        self._judge_answers(step)
        if self.run.violations:
            return observation
        self._judge_told(observation)
        worker = before.worker
        memory = worker.memory.wipe(plan.taken).copy({copy.destination: copy.source for copy in plan.copies})
        self._activate(observation)
        self._judge_announced(reply["announced"])
        self._note_others(step)
        loaded = self.process.ask("load", writes=self._numbers.written(worker.memory, memory))
        if isinstance(loaded, Failure):
            return loaded
        memory = self._changed(memory, loaded["changed"])
        memory = self._judge_synchronous(memory, plan.loads)
        worker, execution = working.execute(
            before.configuration, attrs.evolve(worker, memory=memory), attrs.evolve(plan, loads=(), taken=(), copies=())
        )
        done = self._finish(memory, worker.memory, everything_ends)
        if isinstance(done, Failure):
            return done
        memory, delivered, failed, ended = done
        updated = self.reply = self.process.ask("update", received=delivered, failed=failed)
        if isinstance(updated, Failure):
            return updated
        self.run.said.append(
            {
                "the answers": step["asked"],
                "the loads": step["told"],
                "what is run": step["scheduled"],
                "what is written": [loaded["changed"], ended["changed"]],
                "what ends": [ended["received"], ended["sent"]],
            }
        )
        self.system = self._system(updated, texts, attrs.evolve(worker, memory=memory))
        return attrs.evolve(
            observation,
            after=self.system,
            plan=plan,
            execution=execution,
            started=observation.admissions,
        )

    def _finish(
        self, before: Memory, memory: Memory, everything_ends: bool
    ) -> tuple[Memory, list[str], list[str], Any] | Failure:
        """The end of a step: the connector saves, and says which loads have ended. What the trace does not let end yet
        is kept from the scheduler."""
        waits, delays = self._store.asynchronous and not everything_ends, self._store.delayed and not everything_ends
        may_end = not waits or any(name in self._ended for name in self._active)
        reply = self.process.ask(
            "finish",
            writes=self._numbers.written(before, memory),
            loads=may_end,
            saves=not delays or self._saves_end,
            polls=0 if waits else POLLS,
        )
        if isinstance(reply, Failure):
            return reply
        self._saves_end = False
        memory = self._changed(memory, reply["changed"])
        received, failed = list(reply["received"]), set(reply["failed"])
        if not self.run.seen:
            received = [name for name in self._active if not waits or name in self._ended]
        for name in received:
            load = self._active.get(name)
            if load is None or name in self._reported:
                self._found(
                    Clause.COMPLETION, f"the load of {name} is reported as ended, and {name} has none under way"
                )
                continue
            if not self.run.seen:
                memory = self._at_its_word(memory, load)
            elif name in self._announced:
                memory = self._from_a_peer(memory, load)
            self._reported.append(name)
            self.run.exercised[Clause.COMPLETION] += 1
            self.run.exercised[Clause.PIN] += name in self._disturbed
            if name not in failed and not set(reply["invalid"]) & self._destinations(load):
                self._judge_content(load, memory)
        self._judge_patience(everything_ends or not self._store.asynchronous)
        delivered = [name for name in self._reported if not waits or name in self._ended]
        injected = [name for name in delivered if not self._ended.pop(name, True)]
        for name in delivered:
            self._reported.remove(name)
            load = self._active.pop(name)
            self.loads.pop(name, None)
            if name in injected:
                self.run.failed_loads += 1
        return memory, delivered, sorted(failed | set(injected)), reply

    def _activate(self, observation: Observation) -> None:
        for admission in observation.admissions:
            for load in admission.loads:
                if load.asynchronous:
                    self._active[load.request] = load
                    self._waited[load.request] = 0

    def _judge_answers(self, step: dict[str, Any]) -> None:
        """Range: of every answer, used or not."""
        for name, asked, tokens, _ in step["asked"]:
            if not tokens:
                continue
            self.run.exercised[Clause.RANGE] += 1
            self.run.exercised[Clause.PURE] += 1
            length = self._known(name)
            most = length - 1 - asked if self._is_recurrent else length - asked
            if not 0 <= tokens <= most:
                self._found(
                    Clause.RANGE,
                    f"asked from {asked} about {length} tokens of {name}, it answers {tokens}; at most {most}",
                )

    def _judge_answers_before(self, failure: Failure) -> None:
        """An answer out of range can be what the scheduler fails on."""
        if failure.kind not in ("crash", "hang", "garbage", "version"):
            reply = self.process.ask("answers")
            if not isinstance(reply, Failure):
                self._judge_answers(reply)

    def _note_others(self, step: dict[str, Any]) -> None:
        busy = {name for name, *_ in (*step["asked"], *step["scheduled"])}
        for name in {*self._active, *(load.request for load in self._synchronous)}:
            if busy - {name}:
                self._disturbed.add(name)

    def _judge_told(self, observation: Observation) -> None:
        told = {admission.decision.request for admission in observation.admissions if not admission.loads}
        self.run.exercised[Clause.UNASSIGNED] += len(told)

    def _judge_announced(self, announced: dict[str, list[int]]) -> None:
        """A load from a peer writes when it ends, into the blocks that it announces."""
        for name, blocks in announced.items():
            load = self._active.get(name)
            self._announced[name] = set(blocks)
            for block in set(blocks) - (self._destinations(load) if load is not None else set()):
                self._found(Clause.UNASSIGNED, f"it announces a load of {name} into block {block} {self._owner(block)}")

    def _judge_synchronous(self, memory: Memory, loads: Iterable[Load]) -> Memory:
        for load in loads:
            if not self.run.seen:
                memory = self._at_its_word(memory, load)
            self.run.exercised[Clause.COMPLETION] += 1
            self.run.exercised[Clause.PIN] += load.request in self._disturbed
            self._judge_content(load, memory)
        return memory

    def _judge_content(self, load: Load, memory: Memory) -> None:
        if not self.run.seen:
            return
        configuration = self.system.configuration
        self.run.exercised.update({clause for clause, *_ in due(configuration, load)})
        for lack in lacking(configuration, load, memory):
            self._found(lack.clause, lack.message)

    def _judge_patience(self, everything_ends: bool) -> None:
        for name in self._active:
            self._waited[name] += 1
            if everything_ends and self._waited[name] == PATIENCE and name not in self._reported:
                self._found(Clause.COMPLETION, f"the load of {name} has not ended after {PATIENCE} steps")

    def _changed(self, memory: Memory, changed: list[Write]) -> Memory:
        """`memory` with what the connector wrote. What it wrote where it was told to load nothing is foreign."""
        after = self._numbers.read(memory, changed)
        allowed: set[int] = set()
        for load in (*self._active.values(), *self._synchronous):
            allowed |= self._destinations(load)
        for block in {block for block, *_ in changed if memory.read(block) != after.read(block)} - allowed:
            after = after.replace(block, FOREIGN)
            self._found(Clause.UNASSIGNED, f"it writes into block {block} {self._owner(block)}")
        return after

    def _destinations(self, load: Load) -> set[int]:
        return _destinations(load, self.system.configuration.groups)

    def _owner(self, block: int) -> str:
        for name, request in self.system.scheduler.requests.items():
            if any(block in table for table in request.tables):
                return (
                    f"of {name}, which it was told to load nothing into" if name not in self._active else f"of {name}"
                )
        return "of no request"

    def _at_its_word(self, memory: Memory, load: Load) -> Memory:
        """What a load brings if the connector keeps the strongest contract."""
        for _, index, column, needed in due(self.system.configuration, load):
            table = load.tables[index]
            if column < len(table):
                memory = memory.write(table[column], needed)
        return memory

    def _from_a_peer(self, memory: Memory, load: Load) -> Memory:
        """What a peer that has all of the prompt reads into the blocks that were announced."""
        for index, group in enumerate(self.system.configuration.groups):
            for column, block in enumerate(load.tables[index]):
                end = min((column + 1) * group.block, load.end)
                if block not in self._announced[load.request] or column * group.block >= end:
                    continue
                if not group.recurrent:
                    memory = memory.replace(block, AttentionKV(index, column * group.block, load.prefix[:end]))
                elif column == column_ending_at(load.end, group.block):
                    memory = memory.replace(block, RecurrentState(index, load.prefix[:end]))
        return memory

    @property
    def _is_recurrent(self) -> bool:
        return any(group.recurrent for group in self.system.configuration.groups)

    def _found(self, clause: Clause, message: str) -> None:
        self.run.violations.append(Violation(clause.value, None, message))


def _destinations(load: Load, groups: tuple[Group, ...]) -> set[int]:
    """Blocks that a load may write: those of its request that no local hit holds."""
    blocks: set[int] = set()
    for table, local, group in zip(load.tables, load.local, groups, strict=True):
        blocks.update(table[local // group.block :])
    return blocks - {NULL_BLOCK}
