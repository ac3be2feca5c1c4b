"""What an action can see of the free queue, and the queue as it then looks.

Of the free queue a step reads which blocks carry a label that one of its requests may look up or publish, and the
blocks that it takes from the front. Everything else is only somewhere in the queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from model.pool import Label
from model.request import Status
from model.system import Observation
from solver.codec import Cached, Codec, Record

NOT_LOOKED_UP = (Status.LOADING, Status.ABORTED_LOADING)


@attrs.frozen(eq=False)
class Sight:
    """`found` has 1 for each symbol that may be looked up or published, `named` for each whose loss may be noticed
    when the block is taken; `takes` is the most blocks that are taken. `considered` are places in the queue of live
    requests of those that are looked up."""

    found: bytes
    named: bytes
    takes: int
    considered: frozenset[int] = frozenset()

    def covers(self, considered: frozenset[int], takes: int) -> bool:
        """Whether an action that looked up these requests and took that many blocks saw nothing that is hidden here."""
        return considered <= self.considered and takes <= self.takes


@attrs.frozen(eq=False)
class View:
    """A free queue under a sight. `seen` is what is left of it: the near part in order, what can be found of the far
    part in a fixed order, and one anonymous block for the end; a queue that is near as a whole has no end. `near` are
    what the anonymous blocks of the near part stand for, `far` is the far part as it is, `findable` what was left of
    it."""

    seen: bytes
    near: tuple[bytes, ...]
    far: bytes
    findable: frozenset[int]
    end: bytes

    def restored(self, free: bytes, anonymous: list[bytes]) -> bytes:
        """The free queue after an action that made `free` of what was seen. Found blocks may be gone; what was added
        is before the near part or behind the end."""
        behind = b""
        if self.end:
            place = free.index(self.end)
            free, behind = free[:place], free[place + 1 :]
        far = self.far
        if self.findable:
            stayed = self.findable.intersection(free)
            free = free[: len(free) - len(stayed)]
            if len(stayed) < len(self.findable):
                gone = self.findable - stayed
                far = bytes(symbol for symbol in far if symbol not in gone)
        for block, real in zip(anonymous, self.near, strict=False):
            free = free.replace(block, real)
        return free + far + behind


def look(sight: Sight, free: bytes, anonymous: list[bytes]) -> View:
    """The free queue (symbols) under a sight. The last of the `anonymous` symbols stands for the end."""
    seen = bytearray()
    near: list[bytes] = []
    left, position = sight.takes, 0
    while left > 0 and position < len(free):
        symbol = free[position]
        left -= not sight.found[symbol]
        if symbol == 0 or sight.found[symbol] or sight.named[symbol]:
            seen.append(symbol)
        else:
            seen += anonymous[len(near)]
            near.append(free[position : position + 1])
        position += 1
    far = free[position:]
    end = b"" if sight.takes >= len(anonymous) else anonymous[-1]
    findable = frozenset(symbol for symbol in far if sight.found[symbol])
    return View(bytes(seen) + bytes(sorted(findable)) + end, tuple(near), far, findable, end)


class Sights:
    """Makes sights for the states of one codec, each once, so that equal ones are the same."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._made: dict[tuple[tuple[int, ...], frozenset[int], int], Sight] = {}
        self._budget = codec.scope.configuration.budget
        self._blocks = [group.block for group in codec.scope.configuration.groups]

    def of(self, live: tuple[int, ...], considered: frozenset[int], takes: int) -> Sight:
        """The sight of a step with these live requests (numbers of records) that looks up those in `considered`."""
        key = live, considered, takes
        sight = self._made.get(key)
        if sight is None:
            records = [self._codec.records[number] for number in live]
            found = self._symbols(
                label for place, record in enumerate(records) for label in self._found(record, place in considered)
            )
            named = self._symbols(label for record in records for label in self._noticed(record))
            sight = self._made[key] = Sight(found, named, takes, considered)
        return sight

    def _symbols(self, labels: Iterable[Label]) -> bytes:
        table = bytearray(256)
        wanted = set(labels)
        for number, value in enumerate(self._codec.symbols):
            if isinstance(value, Cached) and value.label in wanted:
                table[number] = 1
        return bytes(table)

    def _found(self, record: Record, considered: bool) -> Iterator[Label]:
        """Labels that the request looks up, or publishes in the step."""
        if considered:
            yield from self._labels(record, record.known)
        elif record.published and record.status not in NOT_LOOKED_UP:
            for label in self._labels(record, min(record.known, record.computed + self._budget)):
                if len(label.prefix) > record.published[label.group] * self._blocks[label.group]:
                    yield label

    def _noticed(self, record: Record) -> Iterator[Label]:
        """Labels that the request misses while it waits to ask again (EVICTED-BEFORE-RETRY)."""
        if record.status is Status.WAITING and not record.computed and any(record.asked):
            yield from self._labels(record, record.known)

    def _labels(self, record: Record, tokens: int) -> Iterator[Label]:
        prefix = self._codec.texts[record.request][:tokens]
        for group, block in enumerate(self._blocks):
            for end in range(block, tokens + 1, block):
                yield Label(group, prefix[:end])


def looked_up(observation: Observation) -> frozenset[str]:
    """Names of the requests that a step may have looked up: those that it admitted or asked again, and the next in
    line, at which it may have stopped."""
    plan, scheduler = observation.plan, observation.before.scheduler
    assert plan is not None
    if observation.preempted:
        return frozenset()
    done = {admission.decision.request for admission in observation.admissions} | set(observation.asked_again)
    ran = {chunk.request for chunk in plan.chunks}
    left = observation.before.configuration.budget - sum(chunk.count for chunk in plan.chunks)
    for name in (*scheduler.skipped, *scheduler.waiting):
        if name in done or name in ran or scheduler.requests[name].status is Status.LOADING:
            continue
        return frozenset({*done, name} if left > 0 else done)
    return frozenset(done)


def taken(observation: Observation) -> int | None:
    """Blocks that a step took; None if it may have wanted more than are free, which depends on the whole queue."""
    plan, scheduler = observation.plan, observation.before.scheduler
    assert plan is not None
    if observation.preempted or observation.after.assertion:
        return None
    ran = {chunk.request for chunk in plan.chunks} | {a.decision.request for a in observation.admissions}
    ran |= set(observation.asked_again)
    left = observation.before.configuration.budget - sum(chunk.count for chunk in plan.chunks)
    waits = any(
        name not in ran and scheduler.requests[name].status is not Status.LOADING
        for name in (*scheduler.skipped, *scheduler.waiting)
    )
    return None if waits and left > 0 else len(plan.taken)
