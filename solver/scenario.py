"""A small concrete situation, and the trace that brings the model there.

A first request fills the cache step by step, so that every boundary has attention and a recurrent state; what must not
be there is evicted; then a second request that shares the prefix arrives and is admitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import attrs

from model.actions import Abort, Action, Arrive, Drain, Evict, LeafAnswers, Step
from model.configuration import Configuration, Eviction, Group, GroupKind, WorkerOrder
from model.connector import Connector
from model.release import NEWEST, Release
from model.rules.lookup import PromptTail
from model.tokens import Segment
from model.trace import Trace

BLOCK = 2
"""Tokens of every block in a scenario, but for that of a second full-attention spec."""

WINDOW = 3
"""Sliding window of the second attention spec, in tokens: it sees one block below a boundary, so any of its boundaries
can be valid without the others."""

MOST_ACTIONS = 8
MOST_TOKENS = 9


@attrs.frozen
class Scenario:
    """What is cached when a request of `tokens` tokens arrives, and what the leaves answer.

    `unit` is the unit of hits in tokens: BLOCK, or 1 where they may end in partial tails. `full` is the full-attention
    hit; `recurrent` and `second` are the valid boundaries (tokens) of the Mamba spec and of a second attention spec: a
    sliding window or, where hits may end in partial tails, full attention in blocks of `unit`. None: there is none.
    """

    tokens: int
    full: int
    recurrent: frozenset[int]
    second: frozenset[int] | None = None
    connector: Connector | None = None
    answers: tuple[LeafAnswers, ...] = ()
    worker_order: WorkerOrder = WorkerOrder.LOAD_BEFORE_COPY
    unit: int = BLOCK
    release: Release = NEWEST

    @property
    def groups(self) -> tuple[Group, ...]:
        mamba = Group(GroupKind.MAMBA, BLOCK)
        if self.second is None:
            return Group(GroupKind.FULL_ATTENTION, BLOCK), mamba
        window = Group(GroupKind.SLIDING_WINDOW, BLOCK, WINDOW)
        second = window if self.unit == BLOCK else Group(GroupKind.FULL_ATTENTION, self.unit)
        return Group(GroupKind.FULL_ATTENTION, BLOCK), second, mamba

    @property
    def deepest(self) -> int:
        """Deepest boundary at which anything is cached, in tokens."""
        boundaries: tuple[int, ...] = (self.full, *self.recurrent, *(self.second or ()))
        return max(boundaries)

    @property
    def can_be_built(self) -> bool:
        """Whether one request can leave such a cache: only where it ends is something cached inside a block, and full
        attention has all that is below its hit."""
        inside = {boundary for boundary in (self.full, *self.recurrent) if boundary % BLOCK}
        closed = self.unit == BLOCK or self.second is None or self.second == frozenset(range(1, len(self.second) + 1))
        return inside <= {self.deepest} and closed

    def __str__(self) -> str:
        hits = f"full attention up to {self.full}, states at {sorted(self.recurrent)}"
        second = "" if self.second is None else f", a second attention spec at {sorted(self.second)}"
        answers = "".join(f", {a.leaf} answers E = {a.answers[0].tokens}" for a in self.answers)
        return f"N = {self.tokens}, {hits}{second}{answers}"

    def trace(self) -> Trace:
        """The actions that bring the model there and admit the request."""
        return Trace(str(self), self._configuration(), tuple(self._actions()), source="prove")

    def _configuration(self) -> Configuration:
        return Configuration(
            groups=self.groups,
            pool_blocks=32,
            budget=BLOCK,
            connector=self.connector,
            eviction=Eviction.ADVERSARIAL,
            worker_order=self.worker_order,
            hash_block=self.unit,
            release=self.release,
        )

    def _actions(self) -> Iterator[Action]:
        shared = self.deepest
        if shared:
            yield from self._filling(shared)
            yield from self._evictions()
        prompt = (Segment("x", min(shared, self.tokens)), Segment("y", self.tokens - min(shared, self.tokens)))
        yield Arrive("probe", tuple(part for part in prompt if part.length), (Segment("p", 1),), self.answers)
        yield Step()

    def _filling(self, tokens: int) -> Iterator[Action]:
        """A request that leaves everything cached that it has computed of its first `tokens` tokens."""
        below_the_last = self.release.prompt_tail is PromptTail.BELOW_LAST_TOKEN
        if self.unit == BLOCK or not below_the_last:
            yield Arrive("filler", (Segment("x", tokens),), (Segment("o", 1),))
            yield Drain()
            return
        # Its last token, which would fill the block or be cached no more, is never run.
        yield Arrive("filler", (Segment("x", tokens + 1),), (Segment("o", 1),))
        yield from (Step() for _ in range(-(-tokens // BLOCK)))
        yield Abort("filler")

    def _evictions(self) -> Iterator[Evict]:
        ends = [*range(BLOCK, self.deepest + 1, BLOCK)]
        if self.deepest % BLOCK:
            ends.append(self.deepest)
        if self.full < self.deepest:
            yield Evict(0, "filler", next(end for end in ends if end > self.full))
        if self.second is not None:
            yield from (Evict(1, "filler", end) for end in self._boundaries if end not in self.second)
        yield from (Evict(len(self.groups) - 1, "filler", end) for end in ends if end not in self.recurrent)

    @property
    def _boundaries(self) -> range:
        return range(self.unit, self.deepest + 1, self.unit)


@attrs.frozen
class ScenarioSpec:
    """A `GroupView` over a set of valid boundaries (tokens, 0 not listed)."""

    boundaries: frozenset[int]
    recurrent: bool
    cap: int
    dropping: ClassVar[bool] = False

    @property
    def hit(self) -> int:
        return self.find(self.cap)

    def find(self, bound: int) -> int:
        return max((boundary for boundary in self.boundaries if boundary <= bound), default=0)

    def searched_from(self, candidate: int) -> ScenarioSpec:
        """A set is searched anew for every candidate."""
        return self


def specs_of(scenario: Scenario, cap: int) -> tuple[ScenarioSpec, ...]:
    """The specs of a scenario as the reconciling lookup visits them: full attention first."""
    full = frozenset(range(scenario.unit, scenario.full + 1, scenario.unit))
    attention = (full,) if scenario.second is None else (full, scenario.second)
    return (
        *(ScenarioSpec(valid, recurrent=False, cap=cap) for valid in attention),
        ScenarioSpec(scenario.recurrent, recurrent=True, cap=cap),
    )
