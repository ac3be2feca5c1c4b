"""What can happen to the engine from outside: the alphabet of traces, of the fuzzer and of the search."""

from __future__ import annotations

import attrs

from model.tokens import Segment


@attrs.frozen
class ScriptedAnswer:
    """What a leaf will say when asked about a request: E tokens (None: unknown, ask again), loaded how."""

    tokens: int | None
    asynchronous: bool = False


@attrs.frozen
class LeafAnswers:
    """The answers of the leaf `leaf`, one for each time it is asked; the last one repeats.

    A leaf that keeps its range cuts E to N - 1 - L. Of a peer leaf the answer is what the peer holds, counted from 0. A
    store answers from what it has, not from a script.
    """

    leaf: str
    answers: tuple[ScriptedAnswer, ...]


@attrs.frozen
class Arrive:
    """A request arrives. `output` is what the model would sample; a leaf that is not named answers E = 0. With
    `skip_reading` it does not read the prefix cache (vLLM: `skip_reading_prefix_cache`). Under priority scheduling a
    lower `priority` goes first."""

    request: str
    prompt: tuple[Segment, ...]
    output: tuple[Segment, ...]
    answers: tuple[LeafAnswers, ...] = ()
    skip_reading: bool = False
    priority: int = 0


@attrs.frozen
class FailedBlock:
    """A block that a load fails to fill: `column` of the table of `group` of `request`."""

    request: str
    group: int
    column: int


@attrs.frozen
class RejectedDrafts:
    """The last `drafts` drafts that a step verifies for `request` are wrong."""

    request: str
    drafts: int


@attrs.frozen
class Step:
    """One scheduling step and its execution, with no other in flight. Synchronous loads of the requests in
    `failed_loads` fail in it, others leave out `failed_blocks`. Drafts are right, as far as the output goes, but for
    those `rejected`.

    `budget` is the most tokens it may schedule; None stands for the configuration's.
    """

    failed_loads: tuple[str, ...] = ()
    budget: int | None = None
    failed_blocks: tuple[FailedBlock, ...] = ()
    rejected: tuple[RejectedDrafts, ...] = ()


@attrs.frozen
class Schedule:
    """One scheduling step that is not executed yet. Only where several steps may be in flight."""

    budget: int | None = None


@attrs.frozen
class Execute:
    """The oldest step in flight is executed, and its output taken. Synchronous loads of `failed_loads` fail in it,
    others leave out `failed_blocks`, and drafts are wrong as in a `Step`."""

    failed_loads: tuple[str, ...] = ()
    failed_blocks: tuple[FailedBlock, ...] = ()
    rejected: tuple[RejectedDrafts, ...] = ()


@attrs.frozen
class Drain:
    """All steps in flight are executed, then steps of `budget` tokens each (None: the configuration's) follow, until
    nothing more can be scheduled."""

    budget: int | None = None


@attrs.frozen
class Evict:
    """Drop the hash of the unreferenced block of `group` that is cached for the first `boundary` tokens of `request`.

    Only under adversarial eviction (vLLM: `BlockPool.evict_blocks`).
    """

    group: int
    request: str
    boundary: int


@attrs.frozen
class EvictObject:
    """The store `leaf` loses its object of `group` for the first `boundary` tokens of `request`; a pinned one stays.

    Where several ranks store, each its part, it is the part of rank `rank`: without it the object cannot be loaded.
    """

    leaf: str
    group: int
    request: str
    boundary: int
    rank: int = 0


@attrs.frozen
class EndLoad:
    """The asynchronous load of `request` ends, successfully or not."""

    request: str
    succeeded: bool = True


@attrs.frozen
class EndSaves:
    """All saves of the store `leaf` that are pending are done now."""

    leaf: str


@attrs.frozen
class Abort:
    """The client gives up `request`."""

    request: str


@attrs.frozen
class Preempt:
    """The running request that was admitted last is preempted (as by a full pool, without needing one)."""


@attrs.frozen
class Reset:
    """The prefix cache is reset, stores included; running requests are preempted first (vLLM: `reset_prefix_cache`)."""


Action = Arrive | Step | Schedule | Execute | Drain | Evict | EvictObject | EndLoad | EndSaves | Abort | Preempt | Reset
