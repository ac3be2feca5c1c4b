"""What does not change during a run: KV cache groups, sizes, eviction mode, worker order, connector tree."""

from __future__ import annotations

import enum
import math
from functools import cached_property

import attrs

from model.connector import Connector, leaves_of
from model.errors import ConfigurationError, UnsupportedConfiguration
from model.geometry import floor_to
from model.release import NEWEST, Release
from model.rules.loads import ResumeColumn
from model.rules.lookup import DraftGroups, PromptTail, ShardedHits
from model.rules.scheduling import Reservation
from model.rules.states import ChunkGrid, StateWrites


class GroupKind(enum.Enum):
    """Kinds of KV cache group (vLLM: FullAttentionSpec, SlidingWindowSpec, ChunkedLocalAttentionSpec, MambaSpec in
    align mode)."""

    FULL_ATTENTION = "full_attention"
    SLIDING_WINDOW = "sliding_window"
    CHUNKED_LOCAL = "chunked_local"
    MAMBA = "mamba"


class StateMode(enum.Enum):
    """At which boundaries a chunk writes the recurrent state (vLLM: `mamba_cache_mode`)."""

    ALIGN = "align"
    """Where it ends; chunks are cut so that they end where a state is to be cached."""
    ALL = "all"
    """At the end of each block, and where it ends; each block is held in a column of its own (up to 0.31)."""


class Eviction(enum.Enum):
    """LRU: only the free queue evicts, in vLLM's order. ADVERSARIAL: any unreferenced cached block may go any time."""

    LRU = "lru"
    ADVERSARIAL = "adversarial"


class WorkerOrder(enum.Enum):
    """Whether a synchronous load precedes the copy of the last state (LOAD-ORDER) or follows it (vLLM's worker)."""

    LOAD_BEFORE_COPY = "load_before_copy"
    COPY_BEFORE_LOAD = "copy_before_load"


class LoadFailure(enum.Enum):
    """What becomes of a request whose load fails (vLLM: `kv_load_failure_policy`; FAIL is the default from 0.33)."""

    RECOMPUTE = "recompute"
    FAIL = "fail"


class Scheduling(enum.Enum):
    """Who is served, and who is preempted (vLLM: `SchedulingPolicy`). PRIORITY: the lowest number first, then who has
    arrived first; the last in that order is preempted, even if it is in the step already."""

    FCFS = "fcfs"
    PRIORITY = "priority"


class ConfigurationClass(enum.Enum):
    """What a proof tells apart: one attention spec beside any number of Mamba groups or a second one, which may lag
    behind; and whether hits may end in a partial tail, inside a block."""

    ONE_ATTENTION_SPEC = "one_attention_spec"
    SECOND_ATTENTION_SPEC = "second_attention_spec"
    ONE_ATTENTION_SPEC_PARTIAL_TAILS = "one_attention_spec_partial_tails"
    SECOND_ATTENTION_SPEC_PARTIAL_TAILS = "second_attention_spec_partial_tails"

    @property
    def second_attention_spec(self) -> bool:
        return self in (
            ConfigurationClass.SECOND_ATTENTION_SPEC,
            ConfigurationClass.SECOND_ATTENTION_SPEC_PARTIAL_TAILS,
        )

    @property
    def partial_tails(self) -> bool:
        return self in (
            ConfigurationClass.ONE_ATTENTION_SPEC_PARTIAL_TAILS,
            ConfigurationClass.SECOND_ATTENTION_SPEC_PARTIAL_TAILS,
        )


@attrs.frozen
class Group:
    """One KV cache group. `block`, `window` and `chunk` are in tokens. Only a sliding window has a `window`; only
    chunked local attention has a `chunk`: a token sees those before it in its own chunk.

    `draft` if it holds layers of a draft model (vLLM: `is_eagle_group`), whose KV of a hit's last token depends on the
    token after it: such a group drops the last block of what it finds. No draft model has recurrent layers.

    Where the KV of each block is sharded over `ranks` context-parallel ranks, `block` counts the tokens of all of them
    (vLLM: `block_size` of the spec times `dcp_world_size`; prefill context parallelism does not scale blocks from 0.26
    on). Every rank has the whole of what is not sharded: recurrent states always, windows and chunks, and the KV of
    some draft models (`dcp_sharded`).
    """

    kind: GroupKind
    block: int
    window: int | None = None
    draft: bool = False
    chunk: int | None = None
    ranks: int = 1

    def __attrs_post_init__(self) -> None:
        if self.block < 1:
            raise ConfigurationError(f"a {self.kind.value} group has a block of {self.block} tokens; use 1 or more")
        if (self.window is not None) != (self.kind is GroupKind.SLIDING_WINDOW):
            raise ConfigurationError(
                f"a {self.kind.value} group {'needs a' if self.window is None else 'takes no'} window"
            )
        if self.window is not None and self.window < 1:
            raise ConfigurationError(f"a sliding window of {self.window} tokens; use 1 or more")
        if (self.chunk is not None) != (self.kind is GroupKind.CHUNKED_LOCAL):
            raise ConfigurationError(
                f"a {self.kind.value} group {'needs a' if self.chunk is None else 'takes no'} chunk"
            )
        if self.chunk is not None and (self.chunk < 1 or self.chunk % self.block):
            raise ConfigurationError(
                f"an attention chunk of {self.chunk} tokens is no multiple of the block of {self.block}; the lookup of "
                "vLLM then reports boundaries inside a chunk without the tokens before them: use a multiple"
            )
        if self.draft and self.recurrent:
            raise ConfigurationError("a draft model has no recurrent layers; use `draft` with attention groups")
        if self.ranks < 1 or self.block % self.ranks:
            raise ConfigurationError(
                f"a block of {self.block} tokens on {self.ranks} ranks; `block` counts the tokens of all ranks: use a "
                "multiple"
            )
        if self.ranks > 1 and self.kind is not GroupKind.FULL_ATTENTION:
            raise ConfigurationError(
                f"a {self.kind.value} group on {self.ranks} ranks; context parallelism shards full attention only"
            )

    @cached_property
    def recurrent(self) -> bool:
        """Whether the group keeps a recurrent state instead of attention KV."""
        return self.kind is GroupKind.MAMBA

    def sees_from(self, position: int) -> int:
        """The first token that the attention of the token after `position` tokens sees (`get_num_skipped_tokens`)."""
        if self.window is not None:
            return max(0, position - self.window + 1)
        return 0 if self.chunk is None else floor_to(position, self.chunk)


@attrs.frozen
class Configuration:
    """A model on an engine.

    `pool_blocks` counts blocks, the null block included; `budget` is the most tokens one step may schedule;
    `hash_block` is the prefix match unit in tokens (vLLM: the GCD of the groups' blocks unless overridden). `retention`
    says how sparsely windows and recurrent states are cached (vLLM: `prefix_cache_retention_interval`): None for all of
    them, 0 for replay boundaries and junctions only, else also once in so many tokens. `state_mode` says where states
    are written. Where `checkpoint_alignment` is given, a prefill's chunk can store one more state, a multiple of it
    from its start (vLLM: `prefill_checkpoint_alignment`, `num_prefill_checkpoint_blocks`).

    Before a policy's decision is carried out, other rules may change it. A model with a `replay_window` runs that many
    tokens at the end of a hit again (vLLM: `prefix_replay_tokens`), and with `auxiliary_outputs` a hit reaches no
    further than outputs of the routed experts are kept (vLLM: `AuxOutputSchedulerConnector`; see model/adjustment.py).

    `steps_in_flight` is how many steps may be planned and not executed yet (vLLM: `max_concurrent_batches`; 2 with
    asynchronous scheduling, as many as stages with pipeline parallelism).

    `drafts` is how many draft tokens a step verifies behind the next token of a request (vLLM:
    `num_speculative_tokens`); each recurrent group of a request has as many scratch blocks (`num_speculative_blocks`).
    They come from the draft model if some group holds its layers, else from the text (n-gram).
    """

    groups: tuple[Group, ...]
    pool_blocks: int
    budget: int
    connector: Connector | None = None
    eviction: Eviction = Eviction.LRU
    worker_order: WorkerOrder = WorkerOrder.LOAD_BEFORE_COPY
    release: Release = NEWEST
    retention: int | None = None
    state_mode: StateMode = StateMode.ALIGN
    checkpoint_alignment: int | None = None
    steps_in_flight: int = 1
    load_failure: LoadFailure = LoadFailure.RECOMPUTE
    scheduling: Scheduling = Scheduling.FCFS
    drafts: int = 0
    replay_window: int = 0
    auxiliary_outputs: bool = False
    hash_block: int = attrs.field()

    @hash_block.default
    def _gcd_of_blocks(self) -> int:
        return math.gcd(*(group.block for group in self.groups))

    def __attrs_post_init__(self) -> None:
        _check(self)

    @cached_property
    def scheduler_block(self) -> int:
        """LCM of the groups' blocks, in tokens."""
        return math.lcm(*(group.block for group in self.groups))

    @cached_property
    def fine_grained(self) -> bool:
        """Whether hits may end at any hash boundary, also inside a block (vLLM: `partial_hash_hits_enabled`).

        A Mamba block is wider than the hash unit, or as wide where sharding widens attention blocks, and no sliding
        window's nor that of chunked local attention is wider: their lookups know only whole blocks.
        """
        if self.mamba_block is None or self.state_mode is not StateMode.ALIGN:
            return False
        sharded = self.context_ranks > 1
        if sharded and self.release.sharded_hits is ShardedHits.SCHEDULER_BLOCKS:
            return False
        whole = (group for group in self.groups if group.window is not None or group.chunk is not None)
        wide = sharded or self.mamba_block > self.hash_block
        return wide and all(group.block == self.hash_block for group in whole)

    @cached_property
    def context_ranks(self) -> int:
        """Context-parallel ranks over which attention is sharded (vLLM: `decode_context_parallel_size`)."""
        return max(group.ranks for group in self.groups)

    @cached_property
    def hit_alignment(self) -> int:
        """The unit of every hit, in tokens (vLLM: `_cache_hit_alignment_tokens`)."""
        return self.hash_block if self.fine_grained else self.scheduler_block

    @cached_property
    def mamba_block(self) -> int | None:
        """The block that all Mamba groups share, in tokens; None without a Mamba group."""
        return next((group.block for group in self.groups if group.recurrent), None)

    @cached_property
    def copied_before_load(self) -> int:
        """Mamba block, in tokens, whose state the worker copies before a synchronous load is complete; 0 for none.

        With drafts it is any: a chunk gets a row for each draft, and those may lie in the next block.
        """
        if self.worker_order is WorkerOrder.LOAD_BEFORE_COPY or self.mamba_block is None:
            return 0
        return 1 if self.drafts else self.mamba_block

    @cached_property
    def most_states(self) -> int:
        """Blocks of one recurrent group that a request holds at a time: the state it came from, and one per step in
        flight for the state at its end, a checkpoint, and scratch blocks."""
        return 1 + self.steps_in_flight + (self.checkpoint_alignment is not None) + self.drafts

    @property
    def lookahead(self) -> int:
        """Tokens past those of a step for which attention has room, for a draft model writes there (vLLM:
        `num_lookahead_tokens`)."""
        return self.drafts if self.has_draft_model else 0

    @cached_property
    def chunk_grid(self) -> int | None:
        """The multiples, in tokens, on which prefill chunks end; None where they may end anywhere."""
        if self.state_mode is StateMode.ALL:
            return None
        if self.mamba_block is None or self.release.chunk_grid is ChunkGrid.MAMBA_BLOCK:
            return self.mamba_block
        return self.smallest_block

    @property
    def smallest_block(self) -> int:
        """The smallest block of any group, in tokens on one rank: what `cache_config.block_size` is set to
        (`EngineCore._initialize_kv_caches`)."""
        return min(group.block // group.ranks for group in self.groups)

    @property
    def resume_block(self) -> int | None:
        """The block, in tokens, by which the worker finds the column of the state at a hit's end; None without a Mamba
        group."""
        own = self.release.resume_column is ResumeColumn.OWN_BLOCK
        return self.mamba_block if own or self.mamba_block is None else self.smallest_block

    def written_states(self, computed: int, end: int) -> tuple[int, ...]:
        """The boundaries, in tokens, at which a chunk from `computed` to `end` writes the recurrent state."""
        block = self.mamba_block
        if block is None or self.state_mode is StateMode.ALIGN:
            return (end,)
        first = floor_to(computed, block) + block
        if computed % block and self.release.state_writes is StateWrites.BLOCKS_BEGUN_BY_THE_CHUNK:
            first += block
        return (*range(first, end, block), end)

    @cached_property
    def specs(self) -> tuple[tuple[int, ...], ...]:
        """Groups with equal specs are looked up together; full attention first.

        Mirrors `HybridKVCacheCoordinator.verify_and_split_kv_cache_groups`. Each entry lists group indexes. Whether a
        group is one of the draft model makes no difference.
        """
        merged: dict[Group, list[int]] = {}
        for index, group in enumerate(self.groups):
            merged.setdefault(attrs.evolve(group, draft=False), []).append(index)
        full_first = sorted(merged, key=lambda group: group.kind is not GroupKind.FULL_ATTENTION)
        return tuple(tuple(merged[group]) for group in full_first)

    @cached_property
    def has_draft_model(self) -> bool:
        """Whether some group holds layers of a draft model."""
        return any(group.draft for group in self.groups)

    @cached_property
    def dropping(self) -> frozenset[int]:
        """Groups that drop the last block of a hit: a spec drops as a whole. Of Mamba groups among them only the flag
        has effects (`MambaManager.find_longest_cache_hit` never drops)."""
        if not self.has_draft_model:
            return frozenset()
        if self.release.draft_groups is DraftGroups.EVERY_GROUP:
            return frozenset(range(len(self.groups)))
        return frozenset(
            index for spec in self.specs if any(self.groups[index].draft for index in spec) for index in spec
        )

    @cached_property
    def configuration_class(self) -> ConfigurationClass:
        """The class whose cells of a proof apply to this configuration."""
        second = len({attrs.evolve(group, draft=False) for group in self.groups if not group.recurrent}) > 1
        return next(
            kind
            for kind in ConfigurationClass
            if (kind.second_attention_spec, kind.partial_tails) == (second, self.fine_grained)
        )


def _check(configuration: Configuration) -> None:
    groups = configuration.groups
    if not any(group.kind is GroupKind.FULL_ATTENTION for group in groups):
        raise UnsupportedConfiguration(
            "no full-attention group: the divergent lookup has no reference group then; add one full_attention group"
        )
    if configuration.pool_blocks < 2:
        raise ConfigurationError(f"a pool of {configuration.pool_blocks} blocks holds nothing beside the null block")
    if configuration.steps_in_flight < 1:
        raise ConfigurationError(f"{configuration.steps_in_flight} steps in flight run nothing; use 1 or more")
    if configuration.budget < 1:
        raise ConfigurationError(f"a budget of {configuration.budget} tokens schedules nothing; use 1 or more")
    if any(group.ranks not in (1, configuration.context_ranks) for group in groups):
        raise ConfigurationError("sharded groups of one model share the context-parallel ranks; use one number of them")
    for group in groups:
        if configuration.hash_block < 1 or group.block % configuration.hash_block:
            raise ConfigurationError(
                f"hash block {configuration.hash_block} does not divide the {group.kind.value} block {group.block}"
            )
    for group in groups:
        if group.chunk is not None and group.block != configuration.hit_alignment:
            raise ConfigurationError(
                f"a chunked_local block of {group.block} tokens; vLLM asserts that it is the hits' unit, here "
                f"{configuration.hit_alignment}"
            )
    if any(groups[index].chunk is not None for index in configuration.dropping):
        raise ConfigurationError("vLLM asserts that chunked local attention drops no block of a draft model")
    if configuration.retention is not None and (
        configuration.retention < 0 or configuration.retention % configuration.scheduler_block
    ):
        raise ConfigurationError(
            f"a retention of {configuration.retention} tokens; use 0 or a multiple of {configuration.scheduler_block}, "
            "the least common multiple of the groups' blocks"
        )
    if configuration.replay_window < 0:
        raise ConfigurationError(f"a replay window of {configuration.replay_window} tokens; use 0 or more")
    if configuration.replay_window and any(group.kind is not GroupKind.FULL_ATTENTION for group in groups):
        raise UnsupportedConfiguration(
            "a replay window beside recurrent states or windows: a model that has one caches full attention only, and "
            "what it runs again for is not cached"
        )
    plain_states = configuration.state_mode is StateMode.ALIGN and configuration.checkpoint_alignment is None
    if configuration.steps_in_flight > 1 and not plain_states:
        raise UnsupportedConfiguration("states in every block and internal checkpoints: use one step in flight")
    if configuration.checkpoint_alignment is not None:
        if configuration.checkpoint_alignment < 1:
            raise ConfigurationError(f"a checkpoint alignment of {configuration.checkpoint_alignment}; use 1 or more")
        if configuration.state_mode is StateMode.ALL or configuration.release.prompt_tail is PromptTail.WITHIN_PROMPT:
            raise UnsupportedConfiguration("internal checkpoints are modelled in align mode, by the rules of 0.32")
    if configuration.state_mode is StateMode.ALL and configuration.release.reservation is not Reservation.BY_TAKING:
        raise UnsupportedConfiguration("states in every block are not estimated; use reservation by taking")
    if configuration.drafts < 0:
        raise ConfigurationError(f"{configuration.drafts} drafts in a step; use 0 or more")
    if configuration.budget <= configuration.drafts:
        raise ConfigurationError(
            f"a budget of {configuration.budget} tokens and {configuration.drafts} drafts: a request that waits with "
            "one token gets a row for each draft, and would wait for ever; use a budget above the drafts"
        )
    if configuration.drafts and configuration.state_mode is StateMode.ALL:
        raise UnsupportedConfiguration("drafts with states in every block; use one without the other")
    if configuration.drafts and configuration.drafts >= (configuration.mamba_block or configuration.drafts + 1):
        raise UnsupportedConfiguration(
            f"{configuration.drafts} drafts and Mamba blocks of {configuration.mamba_block} tokens: one step may pass "
            "two boundaries, and only one state is copied back; use fewer drafts"
        )
    mamba_blocks = sorted({group.block for group in groups if group.recurrent})
    if len(mamba_blocks) > 1:
        raise ConfigurationError(f"Mamba groups share one block size in vLLM, these have {mamba_blocks}")
    if configuration.connector is not None:
        names = [leaf.name for leaf in leaves_of(configuration.connector)]
        if len(set(names)) != len(names):
            raise ConfigurationError(f"leaf names {names} are not unique; answers are addressed by leaf name")
