"""The rules of the lookup: which boundaries are found, and which are kept for it."""

from __future__ import annotations

import enum


class SkippedReading(enum.Enum):
    """What a request may use that is not to read the prefix cache (`skip_reading_prefix_cache`)."""

    NOTHING = "nothing"
    """Neither local hits nor external tokens (from 0.31)."""
    EXTERNAL = "external"
    """External tokens all the same (up to 0.30)."""


class PromptTail(enum.Enum):
    """Where a prompt's partial tail is cached and its prefill stopped (`_cache_partial_tail_block`)."""

    WITHIN_PROMPT = "within_prompt"
    """The last one of the prompt, also where the prompt ends there, which no repeated prompt can hit (up to 0.31)."""
    BELOW_LAST_TOKEN = "below_last_token"
    """The last one below the prompt's last token (from 0.32); the last whole block of a prefill likewise."""


class TailStop(enum.Enum):
    """Where a prefill stops at the last hash boundary of its prompt, so that a state is written there
    (`mamba_partial_cache_hit`)."""

    WHERE_HITS_END = "where_hits_end"
    """Where hits may end at it (from 0.28)."""
    BELOW_THE_SCHEDULER_BLOCK = "below_the_scheduler_block"
    """Where hash units are smaller than scheduler blocks: in vain beside a group of wider blocks (up to 0.27)."""


class Truncation(enum.Enum):
    """Which hit lists have to reach the boundary at which a partial tail is dropped (`truncate_computed_blocks`)."""

    ATTENTION_COVERS = "attention_covers"
    """Those of attention groups; a state comes with the load (vLLM #51468, in 0.28)."""
    EVERY_GROUP_COVERS = "every_group_covers"
    """All, so that a divergent hit fails the engine's assertion (0.27)."""


class DraftGroups(enum.Enum):
    """Which groups drop the last block of a hit, when there is a draft model (EAGLE, MTP)."""

    HOLDING_DRAFT_LAYERS = "holding_draft_layers"
    EVERY_GROUP = "every_group"
    """No group was recognised as that of the draft model, so all were taken for it (vLLM #57616, #54360, #52735)."""


class DraftDrop(enum.Enum):
    """How far past a candidate a draft group looks before it drops a block, and how often it drops."""

    PAST_THE_CAP = "past_the_cap"
    """One block past the candidate, as far as the request is hashed; once per candidate (from 0.32)."""
    WITHIN_THE_CAP = "within_the_cap"
    """One block past the candidate, but never past the cap; once per candidate (up to 0.31)."""
    EVERY_PASS = "every_pass"
    """Never past the candidate, and dropped again on each pass of the lookup (before vLLM #32802)."""


class ReplayBoundaries(enum.Enum):
    """At which boundaries of a prompt sparse retention keeps a state for whoever begins with the same prompt."""

    AFTER_THE_DROP = "after_the_drop"
    """With a draft model, where its drop lets a repetition and a longer prompt resume (vLLM #55760, in 0.30)."""
    PROMPT_END = "prompt_end"
    """The last boundary below the prompt's end, draft model or not (up to 0.29)."""


class JunctionRetention(enum.Enum):
    """At which boundaries sparse retention keeps a state for whoever shares a prefix up to a junction."""

    AND_A_BLOCK_LOWER = "and_a_block_lower"
    """At the junction and, where the group drops a block, a block lower (from 0.33)."""
    ITSELF = "itself"
    """At the junction only (up to 0.32)."""


class JunctionRule(enum.Enum):
    """What is taken for the junction: the shared prefix of which a sparse group has no state yet."""

    LONGEST_GROUP = "longest_group"
    """The longest hit of any group on the way to the common one."""
    SHARED_BY_DENSE_GROUPS = "shared_by_dense_groups"
    """The longest hit that all full-attention groups share (proposed in vLLM #56142)."""


class WindowPublication(enum.Enum):
    """Of which boundaries a sliding window's blocks are cached where hits are fine-grained (`reachable_block_mask`)."""

    EVERY_HIT_BOUNDARY = "every_hit_boundary"
    """Of all that a hit may end at (from 0.29)."""
    SCHEDULER_BLOCKS = "scheduler_blocks"
    """Of multiples of the scheduler block, so that most partial tails are cached in vain (up to 0.28)."""


class ShardedHits(enum.Enum):
    """Where hits may end if attention blocks are sharded over context-parallel ranks (`partial_hash_hits_enabled`)."""

    HASH_BOUNDARIES = "hash_boundaries"
    """At any hash boundary, like others, also where Mamba blocks are as wide as the hash unit (from 0.29)."""
    SCHEDULER_BLOCKS = "scheduler_blocks"
    """At multiples of the scheduler block only (0.26 to 0.28; before that, no hybrid model is sharded)."""


class PerGroupBlocks(enum.Enum):
    """By which blocks each group on its own is looked up (`find_longest_cache_hit_per_group`)."""

    OF_ALL_RANKS = "of_all_ranks"
    """By those by which it is cached (from 0.29)."""
    OF_ONE_RANK = "of_one_rank"
    """Sharded attention by those of one rank, by which nothing is cached: no hit (0.26 to 0.28)."""
