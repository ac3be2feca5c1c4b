"""Local prefix-cache lookups: what is cached where, per spec, and the reconciled hit of all specs.

Mirrors the `find_longest_cache_hit` of each manager (vllm/v1/core/single_type_kv_cache_manager.py) and
`HybridKVCacheCoordinator.find_longest_cache_hit` (vllm/v1/core/kv_cache_coordinator.py). Equal specs are looked up
together: a position is a hit only if every group of the spec has it.
"""

from __future__ import annotations

from functools import cached_property

import attrs

from model.configuration import Configuration, Group, GroupKind
from model.geometry import columns_for, floor_to
from model.plan import Table
from model.policy import Lookup, Policy, Summary
from model.pool import NULL_BLOCK, Label, Pool
from model.rules.lookup import DraftDrop, JunctionRule, PerGroupBlocks
from model.rules.states import DraftLookAhead
from model.tokens import Prefix
from model.values import evolve


@attrs.frozen
class SpecView:
    """The groups of one spec, as a lookup for `prefix` sees them in `pool`; a `GroupView` for policies.

    `alignment` is the unit of every hit (see `Configuration.hit_alignment`), `cap` the most a lookup may report. A spec
    that is `dropping` (draft models) looks `margin` tokens past a bound, but not past `farthest`, and drops the last
    block (hash unit, where hits are fine-grained) of what it finds, so that it finds the same again. `reach` is the
    bound up to which full attention was searched: a lower one cuts what was found then. All in tokens.
    """

    group: Group
    indexes: tuple[int, ...]
    pool: Pool
    prefix: Prefix
    cap: int
    alignment: int
    dropping: bool = False
    margin: int = 0
    farthest: int = 0
    drops_on_every_pass: bool = False
    reach: int = attrs.field()

    @reach.default
    def _whole(self) -> int:
        return self._looks_to(self.cap)

    @property
    def recurrent(self) -> bool:
        return self.group.recurrent

    @cached_property
    def hit(self) -> int:
        return self.find(self.cap)

    @property
    def trimmed(self) -> bool:
        """Whether a lower bound trims what was found instead of looking it up again."""
        return self.group.kind is GroupKind.FULL_ATTENTION

    @cached_property
    def plain(self) -> SpecView:
        """The same spec without its drop: where its content allows a request to resume."""
        return evolve(self, dropping=False, margin=0) if self.dropping else self

    def find(self, bound: int) -> int:
        """Greatest valid boundary that is at most `bound` tokens; 0 if there is none."""
        searched = min(self._looks_to(bound), len(self.prefix))
        if self.group.kind is GroupKind.FULL_ATTENTION:
            found = self._longest_match(max(searched, self.reach) if self._probes_tails else searched)
            kept = max(0, found - self._dropped * min(self.alignment, self.group.block))
            return floor_to(min(bound, kept), self.alignment)
        if self.group.kind is GroupKind.SLIDING_WINDOW:
            return self._last_window(searched // self.group.block)
        if self.group.kind is GroupKind.CHUNKED_LOCAL:
            return self._run_in_chunk(searched)
        return self._last_checkpoint(searched)

    def searched_from(self, candidate: int) -> SpecView:
        """The same after its first search, with `candidate` as bound: full attention is searched once per lookup, and
        cut to each lower candidate, for what covers a boundary covers every lower one."""
        return evolve(self, reach=self._looks_to(candidate)) if self._probes_tails else self

    def valid(self, boundary: int) -> bool:
        """Whether a request may resume at `boundary` as far as this spec is concerned."""
        return self.plain.find(boundary) == boundary

    def has_one_to_drop(self, boundary: int) -> bool:
        """Whether what a draft group drops after the valid `boundary` is cached, and a lookup may look at it."""
        end = boundary + min(self.alignment, self.group.block)
        if end > self.farthest:
            return False
        return self.plain.find(end) == end if self._probes_tails else self._cached(end)

    def tables(self, boundary: int) -> tuple[Table, ...]:
        """Hit blocks by column for a valid `boundary`, one table per group; what is not needed is the null block."""
        columns = columns_for(boundary, self.group.block)
        if self.group.kind is GroupKind.SLIDING_WINDOW:
            first = max(0, columns - self._window_columns())
        elif self.recurrent:
            first = max(0, columns - 1)
        else:
            first = self.group.sees_from(boundary) // self.group.block
        last = boundary
        if self.group.kind is GroupKind.FULL_ATTENTION and self._probes_tails:
            last = self._longest_match(self.reach)
        ends = [min((column + 1) * self.group.block, last) for column in range(first, columns)]
        return tuple((NULL_BLOCK,) * first + tuple(self._block(index, end) for end in ends) for index in self.indexes)

    @property
    def _probes_tails(self) -> bool:
        """Whether a hit may end inside a block of this spec."""
        return self.alignment < self.group.block

    def _longest_match(self, bound: int) -> int:
        """End of the run of whole blocks from the start and, if tails are probed, of the longest cached tail of the
        block after it."""
        block, columns, run = self.group.block, bound // self.group.block, 0
        while run < columns and self._cached((run + 1) * block):
            run += 1
        if self._probes_tails:
            last = min((run + 1) * block - self.alignment, floor_to(bound, self.alignment))
            for end in range(last, run * block, -self.alignment):
                if self._cached(end):
                    return end
        return run * block

    def _looks_to(self, bound: int) -> int:
        """How far a search up to `bound` looks."""
        return min(bound + self.margin, self.farthest) if self.margin else bound

    def _last_window(self, columns: int) -> int:
        """Rightmost run as long as the window needs, aligned after the drop; a shorter run that starts at column 0 also
        counts, but is rounded down before the drop as well."""
        needed = self._window_columns() + self._dropped
        for end in range(columns, 0, -1):
            kept = (end - self._dropped) * self.group.block
            if kept % self.alignment == 0 and all(
                self._cached((column + 1) * self.group.block) for column in range(max(0, end - needed), end)
            ):
                if end >= needed:
                    return kept
                rounded = floor_to(end * self.group.block, self.alignment)
                return floor_to(max(0, rounded - self._dropped * self.group.block), self.alignment)
        return 0

    def _run_in_chunk(self, bound: int) -> int:
        """Longest run from the start of the bound's chunk. What lies before that chunk is never seen again, so it need
        not be cached: no boundary but the end of a chunk is implied by a greater one."""
        end = self.group.sees_from(bound) // self.group.block * self.group.block
        while end + self.group.block <= bound and self._cached(end + self.group.block):
            end += self.group.block
        return end

    def _last_checkpoint(self, bound: int) -> int:
        for end in range(floor_to(bound, self.alignment), 0, -self.alignment):
            if self._cached(end):
                return end
        return 0

    @property
    def _dropped(self) -> int:
        """Columns (hash units, where tails are probed) that are dropped of what was found."""
        return int(self.dropping)

    def _window_columns(self) -> int:
        """Columns that the tokens before a boundary can see: ceil((window - 1) / block)."""
        assert self.group.window is not None
        return columns_for(self.group.window - 1, self.group.block)

    def _cached(self, end: int) -> bool:
        prefix = self.prefix[:end]
        return all(self.pool.find(Label(index, prefix)) is not None for index in self.indexes)

    def _block(self, index: int, end: int) -> int:
        block = self.pool.find(Label(index, self.prefix[:end]))
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
    """Everything one lookup found out, for the policy (`summary`) and for the properties (`views`, `accepted`).

    `views` see each spec on its own, `reconciled` as it was searched for the common hit.
    """

    views: tuple[SpecView, ...]
    reconciled: tuple[SpecView, ...]
    accepted: tuple[Accepted, ...]
    summary: Summary

    def junction(self, rule: JunctionRule) -> int:
        """The prefix, in tokens, that is shared but not hit for want of some group's state or window; 0 if there is
        none."""
        if rule is JunctionRule.LONGEST_GROUP:
            shared = max((step.result for step in self.accepted), default=0)
        else:
            shared = min(view.hit for view in self.views if view.trimmed)
        return shared if shared > self.summary.common else 0


@attrs.frozen
class Reconciled:
    """The common hit, the specs as they were searched for it, and every call of `accept`."""

    common: int
    views: tuple[SpecView, ...]
    accepted: tuple[Accepted, ...]


def reconcile(policy: Policy, views: tuple[SpecView, ...], cap: int) -> Reconciled:
    """The common hit: each spec accepts or lowers the candidate, until a whole round lowers nothing.

    A spec that has dropped does not drop again until one that did not drop lowers the candidate. Full attention never
    does: it is looked up once, and then only trimmed.
    """
    accepted: list[Accepted] = []
    searched: list[SpecView] = []
    candidate = cap
    dropped: set[int] = set()
    while True:
        round_start = candidate
        for spec, view in enumerate(views):
            if len(searched) == spec:
                searched.append(view.searched_from(candidate))
            drops = view.dropping and spec not in dropped
            result = policy.accept(searched[spec].plain if spec in dropped else searched[spec], candidate)
            accepted.append(Accepted(spec, candidate, result))
            if drops and not view.drops_on_every_pass:
                dropped.add(spec)
            elif not drops and result < candidate:
                dropped = {earlier for earlier in dropped if views[earlier].trimmed}
            candidate = result
        if candidate >= round_start or candidate <= 0:
            return Reconciled(candidate, tuple(searched), tuple(accepted))


def _aligned_common(policy: Policy, views: tuple[SpecView, ...], common: int, unit: int) -> int:
    """The deepest multiple of `unit` tokens, `common` at most, that is common to all specs."""
    while common % unit:
        below = floor_to(common, unit)
        common = min(below, reconcile(policy, views, below).common)
    return common


def look_up(
    policy: Policy, configuration: Configuration, pool: Pool, prefix: Prefix, lookup: Lookup, cap: int
) -> LocalLookup:
    """Look up the first `cap` tokens of `prefix` in every group, each on its own and all together."""
    views = tuple(_view(configuration, indexes, pool, prefix, cap) for indexes in configuration.specs)
    reconciled = reconcile(policy, views, cap)
    hits = [0 if _looked_up_by_rank(configuration, view, lookup) else view.hit for view in views]
    summary = Summary(
        lookup=lookup,
        full_attention=hits[0],
        shallowest=min(hits),
        deepest=max(hits),
        lowest_attention=min(hit for hit, view in zip(hits, views, strict=True) if not view.recurrent),
        common=reconciled.common,
        aligned_common=_aligned_common(policy, views, reconciled.common, configuration.scheduler_block),
        scheduler_block=configuration.scheduler_block,
        copied_before_load=configuration.copied_before_load,
    )
    return LocalLookup(views, reconciled.views, reconciled.accepted, summary)


def _looked_up_by_rank(configuration: Configuration, view: SpecView, lookup: Lookup) -> bool:
    """Whether the lookup of this spec on its own is in blocks of one rank, which nothing is cached by."""
    by_rank = configuration.release.per_group_blocks is PerGroupBlocks.OF_ONE_RANK
    return by_rank and lookup is Lookup.PER_GROUP and view.group.ranks > 1


def _view(configuration: Configuration, indexes: tuple[int, ...], pool: Pool, prefix: Prefix, cap: int) -> SpecView:
    """The spec of the groups `indexes`; whether it drops is said by the groups, how by the release."""
    group, release = configuration.groups[indexes[0]], configuration.release
    dropping = indexes[0] in configuration.dropping
    every_kind = release.draft_look_ahead is DraftLookAhead.EVERY_KIND
    every_pass = release.draft_drop is DraftDrop.EVERY_PASS
    looks_ahead = dropping and not every_pass and (every_kind or not group.recurrent)
    hashed = floor_to(len(prefix), configuration.hash_block)
    return SpecView(
        group,
        indexes,
        pool,
        prefix,
        cap,
        configuration.hit_alignment,
        dropping=dropping,
        margin=min(configuration.hit_alignment, group.block) if looks_ahead else 0,
        farthest=hashed if release.draft_drop is DraftDrop.PAST_THE_CAP else cap,
        drops_on_every_pass=every_pass and group.kind is not GroupKind.FULL_ATTENTION,
    )


def tables_at(
    configuration: Configuration, local: LocalLookup, boundary: int
) -> tuple[tuple[Table, ...], tuple[int, ...]]:
    """Hit blocks of every group for a local hit of `boundary` tokens, and up to which boundary each group has them.

    A group whose own hit is not as deep gives that one, or its deepest valid boundary below `boundary`: its list is
    shorter, as in `get_computed_blocks_for_connector`.
    """
    tables: list[Table] = [()] * len(configuration.groups)
    reached = [0] * len(configuration.groups)
    for view in local.reconciled if boundary == local.summary.common else local.views:
        own = view.hit if view.hit < boundary else view.plain.find(boundary)
        for index, table in zip(view.indexes, view.tables(own), strict=True):
            tables[index] = table
            reached[index] = own
    return tuple(tables), tuple(reached)
