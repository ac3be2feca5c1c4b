"""A step that was planned and has not been executed yet: what its output will need.

vLLM keeps the `SchedulerOutput` until `update_from_output`; with one step in flight it lives only within a step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import attrs

from model.admission import Admission
from model.plan import Chunk, StepPlan, Table
from model.pool import Label
from model.values import evolve


@attrs.frozen
class Work:
    """What the scheduler remembers of one chunk: the request's tables when it was planned, the blocks that it published
    then, the labels of recurrent states among them, and whether it `samples`: it runs the last token that was known,
    or one that was not. `padding` counts rows that were added without drafts, cut or not (see `DraftPadding`)."""

    tables: tuple[Table, ...] = ()
    published: tuple[int, ...] = ()
    states: frozenset[Label] = frozenset()
    samples: bool = False
    padding: int = 0


@attrs.frozen(slots=False)
class InFlight:
    """One step in flight. `admissions` are those whose first chunk it runs, or whose load it starts; `work` is by
    request. `freed` are blocks that are free once it has executed, each time those that were lost together, in
    the order of their release (vLLM: `deferred_frees`)."""

    plan: StepPlan
    admissions: tuple[Admission, ...] = ()
    work: Mapping[str, Work] = attrs.Factory(dict)
    freed: tuple[Table, ...] = ()

    def without_wiping(self, blocks: Collection[int]) -> InFlight:
        """The same step, which does not wipe `blocks`."""
        taken = tuple(block for block in self.plan.taken if block not in blocks)
        return evolve(self, plan=evolve(self.plan, taken=taken))

    def moved_back(self, request: str, tokens: int) -> InFlight:
        """The same step, with the chunk of `request` moved back by `tokens` tokens."""
        chunks = (chunk.moved_back(tokens) if chunk.request == request else chunk for chunk in self.plan.chunks)
        return evolve(self, plan=evolve(self.plan, chunks=tuple(chunks)))

    @property
    def states(self) -> frozenset[Label]:
        """Labels of all recurrent states that it writes and that are published."""
        return frozenset().union(*(work.states for work in self.work.values()))

    @property
    def chunks(self) -> Iterator[tuple[Chunk, Work]]:
        """Its chunks, each with what is remembered of it."""
        return ((chunk, self.work[chunk.request]) for chunk in self.plan.chunks)


def after_rejection(steps: tuple[InFlight, ...], request: str, rejected: int) -> tuple[InFlight, ...]:
    """The steps in flight once the last `rejected` tokens of a chunk of `request` do not count: what was planned
    meanwhile took all its drafts for right. The worker lets a request go on where it was, which it knows before the
    scheduler does (`update_num_computed_tokens_for_batch_change`, vllm/v1/spec_decode/utils.py). A request that was
    admitted again since starts anew."""
    moved = list(steps)
    for number, step in enumerate(steps):
        own = next((chunk for chunk in step.plan.chunks if chunk.request == request), None)
        if own is not None and own.starts:
            break
        moved[number] = step if own is None else step.moved_back(request, rejected)
    return tuple(moved)
