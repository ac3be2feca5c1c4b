"""The same successors, computed once for all states that an action cannot tell apart.

An action sees the live requests, the blocks they hold, and of the free queue only what it may take or find. The rest
is cut out of the state's code, or made anonymous, and the readable model decides on what remains: `apply`, the judge
and the codec are those of `successors.py`. What comes out is put together again with what was cut out. Why this is
exact:

- What has ended or is still to come plays no part in an action other than its own arrival.
- A cached block that no live request can find or publish anew is only one more cached block in the free queue. Each
  gets a label of its own that nobody can look up, so that its place in the queue afterwards is known.
- Blocks that lie deeper in the free queue than the action can take, counting every block that any request may need,
  stay there, between the same neighbours. One anonymous block stands for each run of them.
- An arrival, an eviction and the abort of a request without blocks change one entry of the code each. What the
  catalogue says of them depends only on its request or label and on what `_noticing` says, and is judged once for
  each of these.

Where two blocks have one label, the whole free queue is kept. The tests compare every successor, violation and event
of small scopes with those of `successors.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from model.actions import Step
from model.configuration import Eviction
from model.memory import Content
from model.policy import Policy
from model.pool import Label
from model.request import Status
from model.system import Observation, System
from solver.codec import GONE, LIVE, TO_COME, Cached, Code, Codec, CodecFault, Record
from solver.enabled import failing_steps
from solver.scope import Disturbance, Scope
from solver.sight import Sight, Sights, View, look, looked_up, taken
from solver.successors import Judged, Kind, Successor, Successors

MOST_REMEMBERED = 100_000
"""Entries kept of each kind; then it starts anew."""

STATUSES = tuple(Status)

_ENDED_FORGOTTEN = bytes((TO_COME, TO_COME, LIVE)) + bytes(253)


@attrs.frozen(eq=False)
class _Parts:
    """A code in parts: phases; queue lengths; the live requests in order, `joins` the place where one arrives;
    symbols of held and of free blocks. `live` are the numbers of the requests' records, `several` the symbols of
    labels that more than one block has."""

    phases: bytes
    counts: bytes
    queue: bytes
    joins: int
    held: bytes
    free: bytes
    live: tuple[int, ...]
    several: frozenset[int]


@attrs.frozen(eq=False)
class _Outcome:
    """What an action leads to, as far as it sees: all up to the free queue is `middle`. `restorable` if the block that
    stands for the end of the queue was not taken, and none of several blocks of a label lost it."""

    number: int
    judged: Judged
    phases: bytes = b""
    middle: bytes = b""
    free: bytes = b""
    restorable: bool = True
    follows: bool = True


class MemoisedSuccessors(Successors):
    """As `Successors`, for codes with sorted blocks. `computed` counts the actions that the model was asked about."""

    def __init__(self, scope: Scope, policy: Policy, codec: Codec) -> None:
        super().__init__(scope, policy, codec)
        assert codec.sort_blocks
        self.computed = 0
        self._blocks = scope.configuration.pool_blocks - 1
        block = scope.configuration.groups[0].block
        anonymous = [
            codec.symbol(Cached(Label(0, (f"anonymous {number}",) * block))) for number in range(self._blocks + 1)
        ]
        self._anonymous = [bytes((symbol,)) for symbol in anonymous]
        self._end = Label(0, (f"anonymous {self._blocks}",) * block)
        self._arrivals = [
            codec.record(Record(number, Status.WAITING, 0, codec.prompts[number], (0,) * len(scope.leaf_names)))
            for number in range(len(codec.names))
        ]
        self._adversarial = scope.configuration.eviction is Eviction.ADVERSARIAL
        self._sights = Sights(codec)
        self._blind = Sight(bytes(256), bytes(256), 0)
        self._whole = self._blocks + 1
        self._everything = Sight(bytes(256), bytes(256), self._whole)
        self._usual: dict[tuple[Status, ...], tuple[frozenset[int], int]] = {}
        self._tried: dict[tuple[int, ...], list[Sight]] = {}
        self._noticed: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._judged: dict[tuple[int, ...], Judged] = {}
        self._kept: dict[tuple[Sight, tuple[int, ...]], Sight] = {}
        self._views: dict[tuple[Sight, bytes], View] = {}
        self._outcomes: dict[tuple[int, Sight, bytes], tuple[_Outcome, ...]] = {}
        self._actions: dict[tuple[int, ...], tuple[int, ...]] = {}

    def of(self, code: Code) -> Iterator[Successor]:
        parts = self._split(code)
        yield from self._after_arrival(code, parts)
        if self._adversarial:
            yield from self._after_eviction(code, parts)
        if parts.live:
            yield from self._after_step(parts)
        for number in self._actions.get(parts.live) or self._possible(parts):
            yield from self._after(number, parts, self._blind)
        if Disturbance.ABORT in self.scope.disturbances:
            yield from self._after_abort(code, parts)
        if Disturbance.RESET in self.scope.disturbances and self._can_reset(parts):
            # A reset forgets every label, so it does not matter which are in the free queue.
            nothing_free = attrs.evolve(parts, free=bytes(len(parts.free)), several=frozenset())
            yield from self._after(Kind.RESET << 8, nothing_free, self._everything)

    def _split(self, code: Code) -> _Parts:
        requests, held = len(self.codec.names), self.codec.held
        phases, counts = code[:requests], code[requests : requests + 3]
        start = position = joins = requests + 3
        ahead = counts[0] + counts[1]
        live: list[int] = []
        distinct = 0  # sorted blocks: the greatest name is their number
        for place in range(1, phases.count(LIVE) + 1):
            number = code[position] << 8 | code[position + 1]
            live.append(number)
            end = position + 2 + held[number]
            distinct = max(distinct, max(code[position + 2 : end], default=0))
            position = end
            if place == ahead:
                joins = position
        free = position + distinct
        return _Parts(
            phases,
            counts,
            code[start:position],
            joins - start,
            code[position:free],
            code[free:],
            tuple(live),
            frozenset() if self.codec.aged.isdisjoint(code[position:]) else self._several(code[position:]),
        )

    def _after_arrival(self, code: Code, parts: _Parts) -> Iterator[Successor]:
        phases = parts.phases
        for request, phase in enumerate(phases):
            if phase != TO_COME:
                continue
            number = Kind.ARRIVE << 8 | request
            running, waiting, skipped = parts.counts
            after = b"".join(
                (
                    phases[:request],
                    b"\2",
                    phases[request + 1 :],
                    bytes((running, waiting + 1, skipped)),
                    parts.queue[: parts.joins],
                    self._arrivals[request].to_bytes(2, "big"),
                    parts.queue[parts.joins :],
                    parts.held,
                    parts.free,
                )
            )
            key = (number, *self._noticing(parts.live))
            yield number, after, self._judged.get(key) or self._judge(key, code, after)

    def _after_abort(self, code: Code, parts: _Parts) -> Iterator[Successor]:
        """Aborts of requests that have no blocks: they wait, or have been skipped."""
        position = 0
        for place, number in enumerate(parts.live):
            record = self.codec.records[number]
            begin, position = position, position + 2 + self.codec.held[number]
            if record.shape or record.status is Status.ABORTED_LOADING:
                continue
            counts = bytearray(parts.counts)
            counts[1 if place < parts.counts[0] + parts.counts[1] else 2] -= 1
            phases = bytearray(parts.phases)
            phases[record.request] = GONE
            queue = parts.queue[:begin] + parts.queue[position:]
            after = b"".join((phases, counts, queue, parts.held, parts.free))
            key = (Kind.ABORT << 8 | record.request, number, *self._noticing(parts.live))
            yield key[0], after, self._judged.get(key) or self._judge(key, code, after)

    def _after_eviction(self, code: Code, parts: _Parts) -> Iterator[Successor]:
        """Of blocks with one label the oldest is evicted, if it is free; the others grow older."""
        start = len(code) - len(parts.free)
        noticing = self._noticing(parts.live)
        for position, symbol in enumerate(parts.free, start):
            if not symbol or symbol in self.codec.aged:
                continue
            number = Kind.EVICT << 8 | symbol
            after = code[:position] + b"\0" + code[position + 1 :]
            key = (number, *noticing)
            if parts.several and symbol in parts.several:
                first = start - len(parts.held)
                after = after[:first] + after[first:].translate(self._grown_older(symbol))
                key = (number, 0, *noticing)
            yield number, after, self._judged.get(key) or self._judge(key, code, after)

    def _noticing(self, live: tuple[int, ...]) -> tuple[int, ...]:
        """By what the catalogue may tell apart an arrival or an eviction while these are live: what requests there
        are (by status), and which of them miss what is evicted while they wait to ask again
        (EVICTED-BEFORE-RETRY)."""
        noticing = self._noticed.get(live)
        if noticing is None:
            records = [self.codec.records[number] for number in live]
            statuses = sorted({-1 - STATUSES.index(record.status) for record in records})
            waiting = (
                number
                for number, record in zip(live, records, strict=True)
                if record.status is Status.WAITING and not record.computed and any(record.asked)
            )
            noticing = self._noticed[live] = (*statuses, *sorted(waiting))
        return noticing

    def _grown_older(self, oldest: int) -> bytes:
        """The table that makes each younger block of a label one step older."""
        table = bytearray(range(256))
        value = self.codec.symbols[oldest]
        assert isinstance(value, Cached)
        for younger in self.codec.aged:
            other = self.codec.symbols[younger]
            assert isinstance(other, Cached)
            if other.label == value.label:
                table[younger] = self.codec.symbol(Cached(value.label, other.age - 1))
        return bytes(table)

    def _several(self, symbols: bytes) -> frozenset[int]:
        """Symbols among these of labels that more than one block has."""
        labels = {self._label(symbol) for symbol in self.codec.aged.intersection(symbols)}
        return frozenset(symbol for symbol in symbols if self._label(symbol) in labels)

    def _label(self, symbol: int) -> Label | Content:
        """What makes two blocks share a label; contents of blocks without one never do."""
        value = self.codec.symbols[symbol]
        return value.label if isinstance(value, Cached) else value

    def _judge(self, key: tuple[int, ...], code: Code, after: Code) -> Judged:
        """Ask the model about an arrival or an eviction."""
        self.computed += 1
        system = self.codec.decode(code)
        (_, found, judged), _ = self.successor(system, self.action_of(key[0], system))
        if found != after:
            raise CodecFault(f"{self.action_of(key[0], system)} changes more than its entry")
        self._judged[key] = judged
        return judged

    def _possible(self, parts: _Parts) -> tuple[int, ...]:
        """Numbers of the actions of live requests that see nothing of the free queue."""
        disturbances = self.scope.disturbances
        found: list[int] = []
        for record in map(self.codec.records.__getitem__, parts.live):
            if record.status in (Status.LOADING, Status.ABORTED_LOADING):
                found.append(Kind.LOAD_ENDS << 8 | record.request)
                if Disturbance.FAILED_LOADS in disturbances:
                    found.append(Kind.LOAD_FAILS << 8 | record.request)
            aborts = Disturbance.ABORT in disturbances and record.status is not Status.ABORTED_LOADING
            if aborts and record.shape:
                found.append(Kind.ABORT << 8 | record.request)
        if Disturbance.PREEMPT in disturbances and parts.counts[0]:
            found.append(Kind.PREEMPT << 8)
        possible = self._actions[parts.live] = tuple(found)
        return possible

    def _can_reset(self, parts: _Parts) -> bool:
        records = [self.codec.records[number] for number in parts.live]
        if any(record.status is not Status.RUNNING and any(map(any, record.shape)) for record in records):
            return False
        cached = any(isinstance(self.codec.symbols[symbol], Cached) for symbol in parts.held + parts.free)
        return cached or bool(parts.counts[0])

    def _after_step(self, parts: _Parts) -> Iterator[Successor]:
        """Look for a step of these requests that saw the same as it would here, in any of the sights tried so far."""
        number = Kind.STEP << 8
        tried = self._tried.setdefault(parts.live, [])
        for sight in tried:
            view, code = self._under(sight, parts)
            outcomes = self._outcomes.get((number, sight, code))
            if outcomes is not None:
                return self._restored(outcomes, parts, view)
        alike = tuple(self.codec.records[record].status for record in parts.live)
        sight = tried[-1] if tried else self._sights.of(parts.live, *self._usual.get(alike, (frozenset(), 1)))
        while True:
            view, code = self._under(sight, parts)
            outcomes, considered, takes = self._ask(number, code, len(parts.held) + len(view.seen) + 1)
            if takes is None or not self._can_restore(outcomes, view):
                # Perhaps only because so much of the queue is hidden.
                takes = sight.takes if sight.takes == self._whole else min(2 * sight.takes, self._whole)
            if sight.covers(considered, takes):
                break
            sight = self._sights.of(parts.live, sight.considered | considered, max(sight.takes, takes))
        if sight not in tried:
            tried.append(sight)
            self._usual[alike] = sight.considered, sight.takes
        self._remember(number, sight, code, outcomes)
        return self._restored(outcomes, parts, view)

    def _after(self, number: int, parts: _Parts, sight: Sight) -> Iterator[Successor]:
        """Successors by an action that sees no more than `sight` leaves."""
        view, code = self._under(sight, parts)
        outcomes = self._outcomes.get((number, sight, code))
        if outcomes is None:
            outcomes, _, _ = self._ask(number, code, len(parts.held) + len(view.seen) + 1)
            if not self._can_restore(outcomes, view):
                return self._after(number, parts, self._everything)
            self._remember(number, sight, code, outcomes)
        return self._restored(outcomes, parts, view)

    def _under(self, sight: Sight, parts: _Parts) -> tuple[View, Code]:
        """The free queue under the sight, and the code of what is left of the state."""
        if parts.several:
            sight = self._keeping(sight, parts)
        view = self._views.get((sight, parts.free))
        if view is None:
            if len(self._views) >= MOST_REMEMBERED:
                self._views.clear()
            view = self._views[sight, parts.free] = look(sight, parts.free, self._anonymous)
        phases = parts.phases.translate(_ENDED_FORGOTTEN)
        return view, b"".join((phases, parts.counts, parts.queue, parts.held, view.seen))

    def _keeping(self, sight: Sight, parts: _Parts) -> Sight:
        """The sight in which all blocks are found that share their label with others."""
        added = tuple(sorted(parts.several))
        kept = self._kept.get((sight, added))
        if kept is None:
            found = bytearray(sight.found)
            for symbol in added:
                found[symbol] = 1
            kept = self._kept[sight, added] = attrs.evolve(sight, found=bytes(found))
        return kept

    def _can_restore(self, outcomes: tuple[_Outcome, ...], view: View) -> bool:
        """Whether all that was hidden was out of the action's reach, and what is left of it can be told."""
        return not view.end or all(outcome.restorable for outcome in outcomes)

    def _restored(self, outcomes: tuple[_Outcome, ...], parts: _Parts, view: View) -> Iterator[Successor]:
        before = parts.phases
        for outcome in outcomes:
            if not outcome.follows:
                yield outcome.number, None, outcome.judged
                continue
            phases = before
            if GONE in outcome.phases:
                phases = bytes(
                    after if earlier == LIVE else earlier for earlier, after in zip(before, outcome.phases, strict=True)
                )
            free = view.restored(outcome.free, self._anonymous)
            yield outcome.number, b"".join((phases, outcome.middle, free)), outcome.judged

    def _ask(self, number: int, code: Code, blocks: int) -> tuple[tuple[_Outcome, ...], frozenset[int], int | None]:
        """Ask the model about an action in a state with this code, the end included. Also returns what a step saw:
        the places of requests that it looked up, and the number of blocks it took."""
        self.computed += 1
        system = self.codec.decode(code, blocks)
        if number != Kind.STEP << 8:
            return (self._outcome(*self.successor(system, self.action_of(number, system))),), frozenset(), 0
        step = self.successor(system, Step())
        outcomes = [self._outcome(*step)]
        _, observation = step
        if observation is not None and observation.plan is not None:
            for failing in failing_steps(self.scope, observation.plan):
                outcomes.append(self._outcome(*self.successor(system, failing)))
        return tuple(outcomes), *self._saw(system, observation)

    def _saw(self, system: System, observation: Observation | None) -> tuple[frozenset[int], int | None]:
        scheduler = system.scheduler
        queue = (*scheduler.running, *scheduler.waiting, *scheduler.skipped)
        if observation is None:
            return frozenset(range(len(queue))), self._whole
        return frozenset(queue.index(name) for name in looked_up(observation)), taken(observation)

    def _outcome(self, successor: Successor, observation: Observation | None) -> _Outcome:
        number, after, judged = successor
        restorable = observation is not None and self._restorable(observation)
        if after is None:
            return _Outcome(number, judged, restorable=restorable, follows=False)
        parts = self._split(after)
        middle = parts.counts + parts.queue + parts.held
        return _Outcome(number, judged, parts.phases, middle, parts.free, restorable)

    def _restorable(self, observation: Observation) -> bool:
        before, after = (system.scheduler.pool.cached for system in (observation.before, observation.after))
        return (self._end in after or self._end not in before) and all(
            len(blocks) == 1 or after.get(label, ())[: len(blocks)] == blocks for label, blocks in before.items()
        )

    def _remember(self, number: int, sight: Sight, code: Code, outcomes: tuple[_Outcome, ...]) -> None:
        if len(self._outcomes) >= MOST_REMEMBERED:
            self._outcomes.clear()
        self._outcomes[number, sight, code] = outcomes
