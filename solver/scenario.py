"""A small concrete situation, and the trace that brings the model there.

A first request fills the cache step by step, so that every boundary has attention and a recurrent state; what must not
be there is evicted; then a second request that shares the prefix arrives and is admitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import attrs

from model.actions import Action, Arrive, Drain, Evict, LeafAnswers, Step
from model.configuration import Configuration, Eviction, Group, GroupKind, WorkerOrder
from model.connector import Connector
from model.tokens import Segment
from model.trace import Trace

BLOCK = 2
"""Tokens of every block in a scenario."""

WINDOW = 3
"""Sliding window of the second attention spec, in tokens: it sees one block below a boundary, so any of its boundaries
can be valid without the others."""

MOST_ACTIONS = 8
MOST_TOKENS = 9


@attrs.frozen
class Scenario:
    """What is cached when a request of `tokens` tokens arrives, and what the leaves answer.

    `full` is the full-attention hit; `recurrent` and `second` are the valid boundaries (tokens) of the Mamba spec and
    of the sliding-window spec; `second` is None without one.
    """

    tokens: int
    full: int
    recurrent: frozenset[int]
    second: frozenset[int] | None = None
    connector: Connector | None = None
    answers: tuple[LeafAnswers, ...] = ()
    worker_order: WorkerOrder = WorkerOrder.LOAD_BEFORE_COPY

    @property
    def groups(self) -> tuple[Group, ...]:
        second = () if self.second is None else (Group(GroupKind.SLIDING_WINDOW, BLOCK, WINDOW),)
        return (Group(GroupKind.FULL_ATTENTION, BLOCK), *second, Group(GroupKind.MAMBA, BLOCK))

    @property
    def deepest(self) -> int:
        """Deepest boundary at which anything is cached, in tokens."""
        boundaries: tuple[int, ...] = (self.full, *self.recurrent, *(self.second or ()))
        return max(boundaries)

    def __str__(self) -> str:
        hits = f"full attention up to {self.full}, states at {sorted(self.recurrent)}"
        second = "" if self.second is None else f", windows at {sorted(self.second)}"
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
        )

    def _actions(self) -> Iterator[Action]:
        shared = self.deepest
        if shared:
            yield Arrive("filler", (Segment("x", shared),), (Segment("o", 1),))
            yield Drain()
            yield from self._evictions()
        prompt = (Segment("x", min(shared, self.tokens)), Segment("y", self.tokens - min(shared, self.tokens)))
        yield Arrive("probe", tuple(part for part in prompt if part.length), (Segment("p", 1),), self.answers)
        yield Step()

    def _evictions(self) -> Iterator[Evict]:
        if self.full < self.deepest:
            yield Evict(0, "filler", self.full + BLOCK)
        for group, valid in ((1, self.second), (len(self.groups) - 1, self.recurrent)):
            if valid is not None:
                for boundary in range(BLOCK, self.deepest + 1, BLOCK):
                    if boundary not in valid:
                        yield Evict(group, "filler", boundary)


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
    full = frozenset(range(BLOCK, scenario.full + 1, BLOCK))
    attention = (full,) if scenario.second is None else (full, scenario.second)
    return (
        *(ScenarioSpec(valid, recurrent=False, cap=cap) for valid in attention),
        ScenarioSpec(scenario.recurrent, recurrent=True, cap=cap),
    )
