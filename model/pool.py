"""The block pool: reference counts, hashes, and the free queue that is also the eviction order.

Mirrors `BlockPool` (vllm/v1/core/block_pool.py). Immutable: each operation returns a new pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from model.tokens import Prefix
from model.values import evolve

NULL_BLOCK = 0
"""Placeholder in block tables; never read, written, referenced or freed."""


@attrs.frozen
class Label:
    """What a block is cached for: the hash of exactly the tokens `prefix`, in one group.

    `prefix` ends where the block does or, for a partial tail, at a hash boundary inside it.
    """

    group: int
    prefix: Prefix


class PoolExhausted(Exception):
    """More blocks were asked for than are free; the caller puts the request off or preempts."""


class EngineAssertion(Exception):
    """A check of the engine's own fails: vLLM would crash here."""


@attrs.frozen(slots=False)
class Pool:
    """`refs` and `labels` by block id; `free` from the block that is taken next to the one taken last.

    `labels` holds the first label of each block; the further ones, under which a block can be found too, are its
    `aliases` (vLLM: `cached_block_hashes_by_block`). `cached` maps a label to its blocks, the oldest first: duplicates
    exist when two requests fill the same block. `taken` are the blocks that changed hands since the last step was
    planned (vLLM: the blocks to be zeroed).
    """

    refs: tuple[int, ...]
    labels: tuple[Label | None, ...]
    free: tuple[int, ...]
    cached: Mapping[Label, tuple[int, ...]]
    taken: tuple[int, ...] = ()
    aliases: Mapping[int, tuple[Label, ...]] = attrs.Factory(dict)

    def find(self, label: Label) -> int | None:
        """Block that is cached for `label`, the oldest of duplicates (`get_cached_block`)."""
        blocks = self.cached.get(label)
        return blocks[0] if blocks else None

    def take(self, count: int) -> tuple[Pool, tuple[int, ...]]:
        """The next `count` free blocks, referenced once; what they were cached for is evicted (`get_new_blocks`)."""
        if not count:
            return self, ()
        if count > len(self.free):
            raise PoolExhausted(f"{count} blocks wanted, {len(self.free)} free")
        taken = self.free[:count]
        pool = self.unpublish(taken)
        refs = list(pool.refs)
        for block in taken:
            refs[block] += 1
        return evolve(pool, refs=tuple(refs), free=pool.free[count:], taken=pool.taken + taken), taken

    def touch(self, blocks: Iterable[int]) -> Pool:
        """Reference hit blocks once more; an unreferenced one leaves the free queue (`touch`)."""
        touched = [block for block in blocks if block != NULL_BLOCK]
        if not touched:
            return self
        refs, free = list(self.refs), self.free
        if any(refs[block] == 0 for block in touched):
            free = tuple(block for block in free if block not in touched)
        for block in touched:
            refs[block] += 1
        return evolve(self, refs=tuple(refs), free=free)

    def release(self, ordered: Iterable[int]) -> Pool:
        """Drop one reference each. Unreferenced blocks without a hash go to the front of the free queue, last in first
        out; hashed ones to the back in the order given (`free_blocks`)."""
        released = [block for block in ordered if block != NULL_BLOCK]
        if not released:
            return self
        refs = list(self.refs)
        to_front: list[int] = []
        to_back: list[int] = []
        for block in released:
            refs[block] -= 1
            if refs[block] == 0:
                (to_front if self.labels[block] is None else to_back).append(block)
        return evolve(self, refs=tuple(refs), free=(*to_front, *self.free, *to_back))

    def publish(self, block: int, label: Label) -> Pool:
        """Cache the full `block` for `label`, and for nothing else any more (`cache_full_blocks`)."""
        return self.unpublish((block,))._with_label(block, label)

    def publish_tail(self, block: int, label: Label) -> Pool:
        """Cache `block` for `label` although it is not full (`cache_partial_block`). A block that was cached for a
        shorter prefix no longer is; one that is cached for a longer prefix gets an alias."""
        if block in self.cached.get(label, ()):
            return self
        first = self.labels[block]
        outgrown = first is not None and len(first.prefix) < len(label.prefix)
        return (self.unpublish((block,)) if outgrown else self)._with_label(block, label)

    def move_labels(self, source: int, destination: int) -> Pool:
        """What `source` was cached for is found in `destination` from now on (`move_block_hashes`)."""
        pool = self.unpublish((source,))
        for label in self.labels_of(source):
            pool = pool._with_label(destination, label)
        return pool

    def labels_of(self, block: int) -> tuple[Label, ...]:
        """Every label under which `block` is found."""
        first = self.labels[block]
        return () if first is None else (first, *self.aliases.get(block, ()))

    def _with_label(self, block: int, label: Label) -> Pool:
        cached = {**self.cached, label: (*self.cached.get(label, ()), block)}
        if self.labels[block] is not None:
            aliases = {**self.aliases, block: (*self.aliases.get(block, ()), label)}
            return evolve(self, aliases=aliases, cached=cached)
        labels = (*self.labels[:block], label, *self.labels[block + 1 :])
        return evolve(self, labels=labels, cached=cached)

    def unpublish(self, blocks: Iterable[int]) -> Pool:
        """Drop the hashes of `blocks`; their place in the free queue stays (`evict_blocks`)."""
        labelled = [block for block in blocks if self.labels[block] is not None]
        if not labelled:
            return self
        labels = list(self.labels)
        cached = dict(self.cached)
        for block in labelled:
            labels[block] = None
            for label in self.labels_of(block):
                remaining = tuple(other for other in cached[label] if other != block)
                if remaining:
                    cached[label] = remaining
                else:
                    del cached[label]
        aliases = {block: others for block, others in self.aliases.items() if labels[block] is not None}
        return evolve(self, labels=tuple(labels), cached=cached, aliases=aliases)


def new_pool(blocks: int) -> Pool:
    """A pool of `blocks` blocks, the null block included, all free in the order of their ids."""
    return Pool(refs=(0,) * blocks, labels=(None,) * blocks, free=tuple(range(1, blocks)), cached={})
