"""The shadow memory: what each physical block really holds, exactly, whatever the scheduler believes.

Block ids are one space that all KV cache groups share, so content names its group. A prefix is named by its tokens.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

import attrs

from model.pool import NULL_BLOCK
from model.tokens import Prefix
from model.values import evolve


class Origin(enum.Enum):
    """Where garbage comes from."""

    UNWRITTEN = "unwritten"
    TAINTED = "tainted"
    """Written by a request that had itself read something wrong."""
    FOREIGN = "foreign"
    """Written by a connector that was told to load nothing."""


@attrs.frozen
class Garbage:
    """Nothing that a reader may rely on."""

    origin: Origin


@attrs.frozen
class AttentionKV:
    """KV of the tokens [start, len(prefix)) of `prefix`, each in its slot; the other slots hold nothing."""

    group: int
    start: int
    prefix: Prefix

    @property
    def end(self) -> int:
        """Boundary, in tokens, after the last token whose KV is held."""
        return len(self.prefix)


@attrs.frozen
class RecurrentState:
    """The recurrent state after exactly the tokens of `prefix`."""

    group: int
    prefix: Prefix


Content = Garbage | AttentionKV | RecurrentState

UNWRITTEN = Garbage(Origin.UNWRITTEN)
TAINTED = Garbage(Origin.TAINTED)
FOREIGN = Garbage(Origin.FOREIGN)


@attrs.frozen
class Memory:
    """Content by block id. Immutable: each operation returns a new memory."""

    blocks: tuple[Content, ...]

    def read(self, block: int) -> Content:
        """What `block` holds."""
        return self.blocks[block]

    def holds(self, block: int, needed: AttentionKV | RecurrentState) -> bool:
        """Whether a reader that needs exactly `needed` finds it in `block`, perhaps among more."""
        return contains(self.blocks[block], needed)

    def write(self, block: int, content: Content) -> Memory:
        """`block` after `content` was written to it; attention KV joins the KV of the same prefix around it."""
        if isinstance(content, AttentionKV):
            content = _joined(self.blocks[block], content)
        return self.replace(block, content)

    def taint(self, block: int, group: int, start: int) -> Memory:
        """`block` after wrong attention KV was written from token `start` on; slots below keep what they had."""
        found = self.blocks[block]
        if isinstance(found, AttentionKV) and found.group == group and found.start < start:
            return self.replace(block, evolve(found, prefix=found.prefix[:start]))
        return self.replace(block, TAINTED)

    def wipe(self, blocks: Iterable[int]) -> Memory:
        """`blocks` hold nothing any more."""
        wiped = set(blocks)
        if not wiped:
            return self
        return Memory(tuple(UNWRITTEN if block in wiped else held for block, held in enumerate(self.blocks)))

    def copy(self, sources: Mapping[int, int]) -> Memory:
        """Each block that is a key holds what the block it maps to held before."""
        if not sources:
            return self
        return Memory(tuple(self.blocks[sources.get(block, block)] for block in range(len(self.blocks))))

    def replace(self, block: int, content: Content) -> Memory:
        """`block` after all of it was overwritten with `content`."""
        # What is written to the null block is lost: it never holds anything.
        if block == NULL_BLOCK:
            return self
        return Memory((*self.blocks[:block], content, *self.blocks[block + 1 :]))


def contains(found: Content, needed: AttentionKV | RecurrentState) -> bool:
    """Whether a reader that needs exactly `needed` finds it in `found`, perhaps among more."""
    if isinstance(needed, RecurrentState):
        return found == needed
    return (
        isinstance(found, AttentionKV)
        and found.group == needed.group
        and found.start <= needed.start
        and found.prefix[: needed.end] == needed.prefix
    )


def empty_memory(blocks: int) -> Memory:
    """A memory of `blocks` blocks, the null block included, into which nothing was written yet."""
    return Memory((UNWRITTEN,) * blocks)


def _joined(found: Content, written: AttentionKV) -> AttentionKV:
    """`written` and what remains beside it of the KV that was `found`. A remainder of another prefix, or one that a gap
    separates, is given up: no request that needs the written tokens may rely on it."""
    if not isinstance(found, AttentionKV) or found.group != written.group:
        return written
    start, prefix = written.start, written.prefix
    if found.start < start and found.prefix[:start] == prefix[:start]:
        start = found.start
    if found.end > written.end >= found.start and found.prefix[: written.end] == prefix:
        prefix = found.prefix
    return AttentionKV(written.group, start, prefix)
