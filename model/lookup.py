"""Local prefix-cache lookups: what is cached where, per spec, and the reconciled hit of all specs.

Mirrors the `find_longest_cache_hit` of each manager (vllm/v1/core/single_type_kv_cache_manager.py) and
`HybridKVCacheCoordinator.find_longest_cache_hit` (vllm/v1/core/kv_cache_coordinator.py). Equal specs are looked up
together: a position is a hit only if every group of the spec has it.
"""

from __future__ import annotations

import attrs

from model.configuration import Configuration, Group, GroupKind
from model.geometry import columns_for, floor_to
from model.plan import Table
from model.policy import Lookup, Policy, Summary
from model.pool import NULL_BLOCK, Label, Pool
from model.tokens import Prefix


@attrs.frozen
class SpecView:
    """The groups of one spec, as a lookup for `prefix` sees them in `pool`; a `GroupView` for policies.

    `alignment` is the unit of every hit (the scheduler block, in tokens), `cap` the most a lookup may report.
    """

    group: Group
    indexes: tuple[int, ...]
    pool: Pool
    prefix: Prefix
    cap: int
    alignment: int

    @property
    def recurrent(self) -> bool:
        return self.group.recurrent

    @property
    def hit(self) -> int:
        return self.find(self.cap)

    def find(self, bound: int) -> int:
        """Greatest valid boundary that is at most `bound` tokens; 0 if there is none."""
        columns = min(bound, len(self.prefix)) // self.group.block
        if self.group.kind is GroupKind.FULL_ATTENTION:
            return self._longest_run(columns)
        if self.group.kind is GroupKind.SLIDING_WINDOW:
            return self._last_window(columns)
        return self._last_checkpoint(columns)

    def valid(self, boundary: int) -> bool:
        """Whether a request may resume at `boundary` as far as this spec is concerned."""
        return self.find(boundary) == boundary

    def tables(self, boundary: int) -> tuple[Table, ...]:
        """Hit blocks by column for a valid `boundary`, one table per group; what is not needed is the null block."""
        columns = columns_for(boundary, self.group.block)
        first = 0
        if self.group.kind is GroupKind.SLIDING_WINDOW:
            first = max(0, columns - self._window_columns())
        elif self.recurrent:
            first = max(0, columns - 1)
        return tuple(
            (NULL_BLOCK,) * first + tuple(self._block(index, column) for column in range(first, columns))
            for index in self.indexes
        )

    def _longest_run(self, columns: int) -> int:
        run = 0
        while run < columns and self._cached(run):
            run += 1
        return floor_to(run * self.group.block, self.alignment)

    def _last_window(self, columns: int) -> int:
        """Rightmost aligned run as long as the window needs; a shorter run that starts at column 0 also counts."""
        for end in range(columns, 0, -1):
            if end * self.group.block % self.alignment == 0:
                first = max(0, end - self._window_columns())
                if all(self._cached(column) for column in range(first, end)):
                    return end * self.group.block
        return 0

    def _last_checkpoint(self, columns: int) -> int:
        for end in range(columns, 0, -1):
            if end * self.group.block % self.alignment == 0 and self._cached(end - 1):
                return end * self.group.block
        return 0

    def _window_columns(self) -> int:
        """Columns that the tokens before a boundary can see: ceil((window - 1) / block)."""
        assert self.group.window is not None
        return columns_for(self.group.window - 1, self.group.block)

    def _cached(self, column: int) -> bool:
        prefix = self.prefix[: (column + 1) * self.group.block]
        return all(self.pool.find(Label(index, prefix)) is not None for index in self.indexes)

    def _block(self, index: int, column: int) -> int:
        block = self.pool.find(Label(index, self.prefix[: (column + 1) * self.group.block]))
        assert block is not None, "tables() is for valid boundaries only"
        return block


@attrs.frozen
class Accepted:
    """One call of the policy's `accept`: what it made of `candidate` for the spec number `spec` (tokens)."""

    spec: int
    candidate: int
    result: int


@attrs.frozen
class LocalLookup:
    """Everything one lookup found out, for the policy (`summary`) and for the properties (`views`, `accepted`)."""

    views: tuple[SpecView, ...]
    accepted: tuple[Accepted, ...]
    summary: Summary

    @property
    def junction(self) -> int:
        """The longest prefix that some group accepted on the way to a shorter common hit, in tokens; else 0."""
        longest = max((step.result for step in self.accepted), default=0)
        return longest if longest > self.summary.common else 0


def reconcile(policy: Policy, views: tuple[SpecView, ...], cap: int) -> tuple[int, tuple[Accepted, ...]]:
    """The common hit: each spec accepts or lowers the candidate, until a whole round lowers nothing."""
    accepted: list[Accepted] = []
    candidate = cap
    while True:
        round_start = candidate
        for spec, view in enumerate(views):
            result = policy.accept(view, candidate)
            accepted.append(Accepted(spec, candidate, result))
            candidate = result
        if candidate >= round_start or candidate <= 0:
            return candidate, tuple(accepted)


def reconcile_aligned(policy: Policy, views: tuple[SpecView, ...], common: int, block: int) -> int:
    """The greatest multiple of `block` up to the common hit `common` that is valid for every spec.

    A common boundary that is no multiple is looked up again below the last multiple under it, until it is one.
    """
    while common % block:
        bound = floor_to(common, block)
        lower, _ = reconcile(policy, views, bound)
        common = min(lower, bound)
    return common


def look_up(policy: Policy, configuration: Configuration, pool: Pool, prefix: Prefix, lookup: Lookup) -> LocalLookup:
    """Look up `prefix` in every group, each on its own and all together."""
    cap = policy.cap(len(prefix))
    views = tuple(
        SpecView(configuration.groups[indexes[0]], indexes, pool, prefix, cap, configuration.scheduler_block)
        for indexes in configuration.specs
    )
    common, accepted = reconcile(policy, views, cap)
    hits = [view.hit for view in views]
    summary = Summary(
        lookup=lookup,
        full_attention=hits[0],
        shallowest=min(hits),
        deepest=max(hits),
        lowest_attention=min(hit for hit, view in zip(hits, views, strict=True) if not view.recurrent),
        common=common,
        aligned_common=reconcile_aligned(policy, views, common, configuration.scheduler_block),
        scheduler_block=configuration.scheduler_block,
    )
    return LocalLookup(views, accepted, summary)


def tables_at(
    configuration: Configuration, local: LocalLookup, boundary: int
) -> tuple[tuple[Table, ...], tuple[int, ...]]:
    """Hit blocks of every group for a local hit of `boundary` tokens, and up to which boundary each group has them.

    A group that is not valid at `boundary` gives its deepest hit below it: its list is shorter, as in
    `get_computed_blocks_for_connector`.
    """
    tables: list[Table] = [()] * len(configuration.groups)
    reached = [0] * len(configuration.groups)
    for view in local.views:
        own = view.find(boundary)
        for index, table in zip(view.indexes, view.tables(own), strict=True):
            tables[index] = table
            reached[index] = own
    return tuple(tables), tuple(reached)
