"""The rules of a connector that keeps objects: how it turns what it has into an answer, and what it keeps.

Each enum is one rule; its first value is what a store has to do, the others are what stores did before they were
repaired. A store has one object per (group, boundary) of a prefix, each of which may go by itself. An object holds one
block, or several that come and go together.
"""

from __future__ import annotations

import enum

import attrs

from model.errors import ConfigurationError


class Match(enum.Enum):
    """Which boundary a lookup finds, among the multiples of the scheduler block beyond the one that was asked."""

    INTERSECTION = "intersection"
    """The greatest at which every group's objects exist (vLLM: `MooncakeStoreCoordinator.find_longest_cache_hit`)."""
    LEAST_OF_GREATEST = "least_of_greatest"
    """The least of what each group has at most (vllm-ascend #11131)."""
    TRUNCATED_ATTENTION = "truncated_attention"
    """Multiples of the hash block: what attention has is cut to what the recurrent groups have (vLLM #50359)."""
    ATTENTION_ONLY = "attention_only"
    """What attention has, whether there is a state or not (LMCache #2879, vLLM #41712)."""
    CONSECUTIVE = "consecutive"
    """Every group must also have the block that follows, as if each were a draft model's (vLLM #57616)."""
    BLOCK_AROUND = "block_around"
    """What attention has. A recurrent group is looked up as a window is: it needs the block around that boundary,
    though the state in it is that of the block's end (vLLM 0.28 to 0.33: `_lookup_complete_chunks` of
    `OffloadingConnectorScheduler`, which rounds N - 1 down to the Mamba block, and nothing that comes after)."""


class LastToken(enum.Enum):
    """What becomes of a match that ends at the request's last token, which has to be run again."""

    BELOW = "below"
    """Not looked for: a match ends at N - 1 or below."""
    COUNTED_OFF = "counted_off"
    """N - 1 tokens are answered, the objects of boundary N are loaded (vLLM #44599, UCM #1130)."""
    INCLUDED = "included"
    """All N tokens are answered (vLLM #51102)."""


class OutputStates(enum.Enum):
    """Whether recurrent states beyond the prompt are stored, as attention is."""

    STORED = "stored"
    DROPPED = "dropped"
    """(vLLM #56972: `MooncakeStoreScheduler._handle_boundary_state_offloads`)"""


class StateSource(enum.Enum):
    """Whence the recurrent state of a boundary is saved."""

    HANDED_OVER = "handed_over"
    """From the block that the scheduler names for that boundary (vLLM: `boundary_state_offloads`)."""
    BY_COLUMN = "by_column"
    """From the boundary's column in a table to which new blocks are only ever appended (vLLM #51358, LMCache #4984)."""
    NOT_KEPT = "not_kept"
    """No recurrent state is saved: such a store has nothing to offer to a model with recurrent layers."""


class NullBlocks(enum.Enum):
    """What becomes of an object one of whose columns is null, where what is saved is found by its columns."""

    SKIPPED = "skipped"
    """It is not saved if a hit at its end sees that column; else without it (vLLM 0.33: `_build_store_jobs`)."""
    LAST_DECIDES = "last_decides"
    """It is saved if its last column is there, without those that are not (vLLM #42945, 0.23 to 0.32)."""
    COUNTED = "counted"
    """The same, but the engine asserts that as many blocks are listed as an object has (before vLLM #42945)."""
    STORED = "stored"
    """States are reported as saved, although there is nothing (tair-kvcache #257)."""


class Guard(enum.Enum):
    """What keeps a save that is not done yet from reading what others write into its block."""

    REFERENCE = "reference"
    """The block is referenced until the save is done (vLLM: `MooncakeStoreScheduler._reference_save_blocks`)."""
    FENCE = "fence"
    """Before the block changes hands, the save is done (vLLM: `jobs_to_flush` of `OffloadingConnectorMetadata`)."""
    OWNED = "owned"
    """When the block changes hands, the save is given up (vLLM: `OffloadingConnectorScheduler._update_req_states`)."""
    FENCE_OWN_LOADS = "fence_own_loads"
    """A fence that sees the blocks of requests that run, and of requests that this leaf loads (vLLM #46951)."""
    NOTHING = "nothing"
    """(vLLM #42959, #51358)"""


class HeldBlocks(enum.Enum):
    """Which blocks are referenced until a save is done, where blocks are (`Guard.REFERENCE`)."""

    SAVED = "saved"
    """The one that is saved."""
    WHOLE_TABLES = "whole_tables"
    """All of the request, scratch blocks included, which then cannot be moved (vllm-ascend #16752)."""


class LoadPins(enum.Enum):
    """Whether the objects of a load can go before it has ended."""

    UNTIL_LOADED = "until_loaded"
    """They stay (vLLM: `OffloadingManager.prepare_load`)."""
    NEVER = "never"
    """(vLLM #39702)"""
    FROM_ANSWER = "from_answer"
    """They stay from the answer on, also if it is not used, until the request is asked again, admitted or gone (vLLM
    #42289: `SimpleCPUOffloadScheduler.get_num_new_matched_tokens`)."""


class LoadStart(enum.Enum):
    """Where a load begins in each group."""

    LOCAL_HIT = "local_hit"
    """Where the local hit ends: what lies below is computed."""
    FIRST_UNHASHED = "first_unhashed"
    """At the first block without a hash, null ones apart. The engine asserts that the local hit does not reach further,
    and a recurrent block that holds the state at the load's end may begin below it (vLLM #50454)."""


class MissingObject(enum.Enum):
    """What becomes of a load one of whose objects is gone."""

    LOAD_FAILS = "load_fails"
    ENGINE_ASSERTS = "engine_asserts"
    """(vLLM #39702)"""


class Agreement(enum.Enum):
    """Whose objects a lookup asks for, where each tensor-parallel rank stores its part."""

    EVERY_RANK = "every_rank"
    """An object is there if every rank has its part (vLLM: `MooncakeStoreWorker.lookup`)."""
    FIRST_RANK = "first_rank"
    """Rank 0 is asked for all."""


class AtReset(enum.Enum):
    """What becomes of a store when the prefix cache is reset."""

    EMPTIED = "emptied"
    KEPT = "kept"
    """(vLLM: `reset_prefix_cache` with its default, `reset_connector=False`)"""


@attrs.frozen
class StoreRules:
    """The rules of one store.

    `asynchronous` is about its loads. `delayed` saves are done when the trace says so, others right after their step.
    An object holds `object_blocks` blocks of its group (vLLM: `blocks_per_chunk`, until 0.25 `block_size_factor`).
    """

    asynchronous: bool = False
    delayed: bool = False
    object_blocks: int = attrs.field(default=1)
    match: Match = Match.INTERSECTION
    last_token: LastToken = LastToken.BELOW
    output_states: OutputStates = OutputStates.STORED
    state_source: StateSource = StateSource.HANDED_OVER
    null_blocks: NullBlocks = NullBlocks.SKIPPED
    guard: Guard = Guard.REFERENCE
    held_blocks: HeldBlocks = HeldBlocks.SAVED
    load_pins: LoadPins = LoadPins.UNTIL_LOADED
    load_start: LoadStart = LoadStart.LOCAL_HIT
    missing_object: MissingObject = MissingObject.LOAD_FAILS
    agreement: Agreement = Agreement.EVERY_RANK
    at_reset: AtReset = AtReset.EMPTIED

    @object_blocks.validator
    def _at_least_one(self, _: object, blocks: int) -> None:
        if blocks < 1:
            raise ConfigurationError(f"objects of {blocks} blocks hold nothing; use 1 or more")

    @property
    def references_sources(self) -> bool:
        """Whether blocks are referenced until a save is done (see `HeldBlocks`)."""
        return self.delayed and self.guard is Guard.REFERENCE

    @property
    def backs_its_answers(self) -> bool:
        """Whether each answer leads to a boundary R <= N - 1 at which all objects exist, hold what their keys say and
        stay until they are loaded: then a load brings the attention KV of [L, R) and state@R, the contract ENDPOINT."""
        return (
            self.match in (Match.INTERSECTION, Match.CONSECUTIVE)
            and self.last_token is LastToken.BELOW
            and self.state_source is not StateSource.BY_COLUMN
            and (self.object_blocks == 1 or self.null_blocks is NullBlocks.SKIPPED)
            and (not self.delayed or self.guard in (Guard.REFERENCE, Guard.FENCE, Guard.OWNED))
            and self.load_pins is LoadPins.UNTIL_LOADED
            and self.agreement is Agreement.EVERY_RANK
            and self.at_reset is AtReset.EMPTIED
        )
