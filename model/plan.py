"""What one scheduling step tells the worker. One immutable type, whoever schedules."""

from __future__ import annotations

import attrs

from model.configuration import Group
from model.connector import Leaf
from model.geometry import column_ending_at, columns_for
from model.pool import NULL_BLOCK, Label
from model.tokens import Prefix
from model.values import evolve

Table = tuple[int, ...]
"""Block ids by column; 0 is the null block."""

Entry = tuple[int, int]
"""A block as content of one group: (group, block id)."""


def entries_of(tables: tuple[Table, ...]) -> set[Entry]:
    """Everything in the tables of one request but the null block."""
    return {(index, block) for index, table in enumerate(tables) for block in table if block}


@attrs.frozen
class Fetch:
    """A block of a stored object, named by `label`, is to be copied into `block`: the last one, or the one that is so
    many `from_end`."""

    label: Label
    block: int
    from_end: int = 0


@attrs.frozen
class Save:
    """What `blocks` hold is to be stored as one object under the key `label`, for the leaf `leaf`; it is content of
    `request`, and the object lacks what is null. The blocks `held` are referenced until it is done. `counted` says how
    many blocks the leaf counts for it (`group_sizes` of `GPULoadStoreSpec`)."""

    leaf: str
    request: str
    label: Label
    blocks: Table
    held: Table = ()
    counted: int = attrs.field()

    @counted.default
    def _as_listed(self) -> int:
        return self.listed

    @property
    def listed(self) -> int:
        """How many blocks are named for it."""
        return len(self.blocks) - self.blocks.count(NULL_BLOCK)


@attrs.frozen
class Load:
    """A transfer of external tokens [start, end) into a request's blocks, announced to one leaf.

    `tables` are the request's tables at the announcement, one per group. `local` says, per group, up to which boundary
    (tokens) the local hit is adopted: the unhashed blocks of the group begin there. `backed` says whether every
    recurrent group held state@start at the announcement. `assigned` is false for a leaf that was told 0 tokens.
    `fetches` is what a leaf that keeps objects copies: it alone says what such a load restores. `held` is how many
    tokens a peer has, whose transfer `comes` or, a second time, does not.

    `fails` if nothing is loaded; `failed_blocks` are entries (group, column) that alone are left out.
    """

    request: str
    leaf: Leaf
    prefix: Prefix
    start: int
    end: int
    tables: tuple[Table, ...]
    local: tuple[int, ...]
    backed: bool
    asynchronous: bool
    assigned: bool = True
    fails: bool = False
    fetches: tuple[Fetch, ...] = ()
    held: int = 0
    comes: bool = True
    failed_blocks: tuple[tuple[int, int], ...] = ()

    def fails_at(self, index: int, column: int) -> bool:
        """Whether the block in a column of group number `index` is not filled."""
        return self.fails or (index, column) in self.failed_blocks

    def failed(self, groups: tuple[Group, ...]) -> set[Entry]:
        """Blocks that should have been filled and were not; null blocks are no destination."""
        return {
            (index, table[column])
            for index, (group, table) in enumerate(zip(groups, self.tables, strict=True))
            for column in self.columns(index, group)
            if table[column] and self.fails_at(index, column)
        }

    def columns(self, index: int, group: Group) -> range:
        """Columns of group number `index` that the load is for: those from its adopted hit to `end`; for a recurrent
        group the one that holds state@end. The one place where the interval of a load is turned into columns."""
        if group.recurrent:
            column = column_ending_at(self.end, group.block)
            return range(column, column + 1)
        return range(min(self.local[index], self.start) // group.block, columns_for(self.end, group.block))


@attrs.frozen
class Copy:
    """Block `source` of `group` is copied to block `destination`, because its labelled content must not be written.

    `replaces` if `destination` takes the place of `source` in the request's table; else the request keeps `source`,
    and what `source` was cached for is found in `destination`.
    """

    group: int
    source: int
    destination: int
    replaces: bool


@attrs.frozen
class Chunk:
    """One request's share of a step: tokens [computed, computed + count) of `prefix` are run.

    `starts` marks the first chunk after an admission: then `new_blocks` are whole tables, else they are appended. The
    first `rerun` of the tokens are part of the hit: they are run for what comes after them, and their KV stays. The
    last `drafts` tokens are drafts, or rows without one, of which the last `rejected` turn out to be wrong. `reserves`
    if there is a block for a checkpoint.
    """

    request: str
    prefix: Prefix
    computed: int
    count: int
    starts: bool
    new_blocks: tuple[Table, ...]
    drafts: int = 0
    rejected: int = 0
    rerun: int = 0
    reserves: bool = False

    @property
    def end(self) -> int:
        """Boundary after the chunk, in tokens."""
        return self.computed + self.count

    @property
    def settled(self) -> int:
        """Boundary up to which its tokens turn out to be right."""
        return self.end - self.rejected

    def moved_back(self, tokens: int) -> Chunk:
        """The same chunk, `tokens` tokens earlier in the text."""
        return evolve(self, computed=self.computed - tokens, prefix=self.prefix[: self.end - tokens])


@attrs.frozen(slots=False)
class StepPlan:
    """Everything the worker does in one step, in no particular order: the worker has its own (see `model/worker.py`).

    `dropped` are requests that finished, were aborted or were preempted since the last step. `taken` are blocks that
    changed hands since then: they are wiped, for they hold nothing that a reader may rely on. `copies` are the partial
    tails that are copied before anything of the step is written (vLLM: `kv_cache_block_copies`). `saves` take place
    after the step, unless it is undone.
    """

    chunks: tuple[Chunk, ...] = ()
    loads: tuple[Load, ...] = ()
    dropped: tuple[str, ...] = ()
    taken: tuple[int, ...] = ()
    copies: tuple[Copy, ...] = ()
    saves: tuple[Save, ...] = ()
