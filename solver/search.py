"""Breadth-first search of every state that is reachable in a scope; the first way to a state is a shortest one."""

from __future__ import annotations

import itertools
import sys
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator

import attrs

from model.policy import Policy
from properties.policy_guard import PolicyLoops
from properties.verdict import Case
from solver.canonical import RequestSorter
from solver.codec import Code, Codec
from solver.memo import MemoisedSuccessors
from solver.scope import Scope
from solver.successors import Judged, Kind, Successors

Signature = tuple[str, Case | None]

NO_STATE = 0xFFFF_FFFF

ENTRY_BYTES = 110
"""What a state costs beside its code: an entry of a hash table as it is about to grow, a number, and three array
items."""

PROGRESS_EVERY = 2_000
"""Expanded states between two progress lines."""


@attrs.frozen
class Symmetry:
    """Which states count as one: those that differ in block names, and those that differ in alike requests. Without
    block symmetry nothing is remembered between states either: each transition is the readable model's own."""

    blocks: bool = True
    requests: bool = True


FULL, NONE = Symmetry(), Symmetry(blocks=False, requests=False)


@attrs.frozen
class Limits:
    """Where a search stops without an end: states that it keeps, and bytes that it may take for them (as it counts)."""

    states: int = 5_000_000
    megabytes: int = 2_000


LIMITS = Limits()
"""Enough for every named scope, and for a machine with a few GB."""


@attrs.define
class Reached:
    """What has been reached. States are numbered in the order in which they were found; `parents` and `actions` tell
    how, `levels` the number of states up to each depth. `steps` is where a step leads; `loads` are (state, request,
    next state) of loads that end well. Of `violations`: the state in which the action was taken, and the action."""

    codes: dict[Code, int]
    parents: array[int] = attrs.Factory(lambda: array("I"))
    actions: array[int] = attrs.Factory(lambda: array("H"))
    steps: array[int] = attrs.Factory(lambda: array("I"))
    loads: array[int] = attrs.Factory(lambda: array("I"))
    levels: list[int] = attrs.Factory(list)
    expanded: int = 0
    transitions: int = 0
    code_bytes: int = 0
    cut: int = 0
    fired: Counter[str] = attrs.Factory(Counter)
    met: Counter[str] = attrs.Factory(Counter)
    violated: Counter[Signature] = attrs.Factory(Counter)
    violations: dict[Signature, tuple[int, int]] = attrs.Factory(dict)
    stopped: str = ""

    @property
    def complete(self) -> bool:
        """Whether every reachable state was expanded."""
        return self.expanded == len(self.codes)

    @property
    def depth(self) -> int:
        """Every run of at most this many actions was looked at."""
        return sum(1 for states in self.levels if states <= self.expanded)

    @property
    def bytes(self) -> int:
        """Memory for the states, by estimate."""
        return self.code_bytes + ENTRY_BYTES * len(self.codes)


class Search:
    """One search. `reached` may come from a search of the same scope and policy that was stopped."""

    def __init__(
        self,
        scope: Scope,
        policy: Policy,
        symmetry: Symmetry = FULL,
        *,
        codec: Codec | None = None,
        reached: Reached | None = None,
    ) -> None:
        self.scope = scope
        self.codec = codec or Codec(scope, sort_blocks=symmetry.blocks)
        self.plain = Successors(scope, policy, self.codec)
        self.successors = MemoisedSuccessors(scope, policy, self.codec) if symmetry.blocks else self.plain
        sorter = RequestSorter(scope, self.codec)
        self.sorter = sorter if symmetry.requests and sorter.classes else None
        if reached is None:
            start = self.plain.initial
            reached = Reached({start: 0}, code_bytes=sys.getsizeof(start), levels=[1])
            reached.parents.append(NO_STATE)
            reached.actions.append(0)
        self.reached = reached

    def run(
        self,
        limits: Limits = Limits(),
        progress: Callable[[str], None] = lambda _: None,
        pause: Callable[[], None] = lambda: None,
    ) -> Reached:
        """Search until everything is reached or a limit is. `pause` is called now and then, with the search in a
        state that can be saved. Raises CodecFault."""
        reached, codes = self.reached, self.reached.codes
        reached.stopped = ""
        tally: dict[Judged, int] = {}
        fired = [0] * len(Kind)
        todo = deque(itertools.islice(codes, reached.expanded, None))
        sort = self.sorter.sort if self.sorter else None
        begin, begun_at = time.monotonic(), reached.expanded
        try:
            while todo:
                if reached.expanded % PROGRESS_EVERY == 0 and reached.expanded > begun_at:
                    self._count(tally, fired)
                    progress(self._line(len(todo), (reached.expanded - begun_at) / (time.monotonic() - begin)))
                    pause()
                if len(codes) >= limits.states or reached.bytes >= limits.megabytes * 1_000_000:
                    reached.stopped = "state limit" if len(codes) >= limits.states else "memory limit"
                    break
                self._expand(todo, tally, fired, sort)
        except PolicyLoops as loops:
            reached.stopped = str(loops)
        finally:
            self._count(tally, fired)
        return reached

    def _expand(
        self,
        todo: deque[Code],
        tally: dict[Judged, int],
        fired: list[int],
        sort: Callable[[Code], tuple[Code, tuple[int, ...]]] | None,
    ) -> None:
        """Expand the first state; what is stopped in between is done again."""
        reached, codes = self.reached, self.reached.codes
        state = reached.expanded
        found = list(self.successors.of(todo[0]))
        step = NO_STATE
        for number, after, judged in found:
            tally[judged] = tally.get(judged, 0) + 1
            fired[number >> 8] += 1
            if judged.violations:
                for violation in judged.violations:
                    reached.violations.setdefault((violation.property, violation.case), (state, number))
            if after is None:
                reached.cut += 1
                continue
            if sort is not None:
                after, _ = sort(after)
            known = codes.get(after)
            if known is None:
                known = codes[after] = len(codes)
                reached.parents.append(state)
                reached.actions.append(number)
                reached.code_bytes += sys.getsizeof(after)
                todo.append(after)
            if number == 0:
                step = known
            elif number >> 8 == Kind.LOAD_ENDS:
                reached.loads.extend((state, number & 255, known))
        reached.transitions += len(found)
        reached.steps.append(step)
        todo.popleft()
        reached.expanded += 1
        if reached.expanded == reached.levels[-1] and len(codes) > reached.expanded:
            reached.levels.append(len(codes))

    def _count(self, tally: dict[Judged, int], fired: list[int]) -> None:
        """Add what was counted since the last time to the totals."""
        reached = self.reached
        for judged, count in tally.items():
            for event in judged.events:
                reached.met[event] += count
            for signature in {(violation.property, violation.case) for violation in judged.violations}:
                reached.violated[signature] += count
        for kind in Kind:
            reached.fired[kind.name] += fired[kind]
            fired[kind] = 0
        tally.clear()

    def _line(self, waiting: int, rate: float) -> str:
        reached = self.reached
        return (
            f"explore {self.scope.name}: {len(reached.codes):,} states, depth {len(reached.levels) - 1}, "
            f"{waiting:,} in the queue, {rate:,.0f} states/s, at least {waiting / max(rate, 1):.0f} s left"
        )

    def path(self, state: int) -> Iterator[int]:
        """Numbers of the actions that lead to a state, in the names of the codes on the way."""
        numbers: list[int] = []
        while state:
            numbers.append(self.reached.actions[state])
            state = self.reached.parents[state]
        return reversed(numbers)
