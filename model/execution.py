"""What the worker reports of one step: above all, every read of content that is not what the request needs."""

from __future__ import annotations

import enum

import attrs

from model.memory import AttentionKV, Content, RecurrentState


class Reason(enum.Enum):
    """Why a read is bad."""

    NULL_BLOCK = "null block"
    """The table has the null block in that column, or no such column."""
    UNWRITTEN = "unwritten"
    WRONG_CONTENT = "wrong content"
    BEFORE_LOAD = "read before a synchronous load into it"


@attrs.frozen
class BadRead:
    """In column `column` of `group`, block `block`, a request needed `needed` and found `found`.

    `computed` is from where its chunk computed what it had not, in tokens; `starts` marks the first chunk after an
    admission.
    """

    request: str
    group: int
    column: int
    block: int
    needed: AttentionKV | RecurrentState
    found: Content
    computed: int
    starts: bool
    reason: Reason

    @property
    def reads_state(self) -> bool:
        """Whether a recurrent state was read, not attention KV."""
        return isinstance(self.needed, RecurrentState)


@attrs.frozen
class LostWrite:
    """A request wrote to a column of `group` that has the null block, or that its table does not have."""

    request: str
    group: int
    column: int


@attrs.frozen
class ChunkOutcome:
    """What became of one chunk, tokens [computed, end). `sound`: it computed what a run without a cache computes.

    `copied` are the groups whose state was copied to another column, from the column `state_column` in which the worker
    looked for it (None for a chunk that starts without a state); `load_failed` marks a synchronous load that
    failed, now or before, if the chunk goes on from what it left.
    """

    request: str
    computed: int
    end: int
    starts: bool
    sound: bool
    copied: tuple[int, ...]
    state_column: int | None
    load_failed: bool


@attrs.frozen
class Execution:
    """One executed step, in the order of the plan's chunks."""

    chunks: tuple[ChunkOutcome, ...] = ()
    bad_reads: tuple[BadRead, ...] = ()
    lost_writes: tuple[LostWrite, ...] = ()
