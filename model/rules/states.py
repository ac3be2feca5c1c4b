"""The rules of states and chunks: where chunks end, what they write, and how partial tails are shared."""

from __future__ import annotations

import enum


class RunningMark(enum.Enum):
    """Which requests count as running when their own partial tail is copied (`_allocated_block_reqs`): these keep their
    block, and what it was cached for moves to the copy; the others go on in the copy."""

    EVERY_ALLOCATION = "every_allocation"
    """Those that were allocated anything, an external load included (vLLM #51766, in 0.28)."""
    NEW_STATE_BLOCK = "new_state_block"
    """Those that took a recurrent block for their running state; one that runs on in the block of a load did not, and
    its worker appends the copy to the table instead of replacing a column (up to 0.27)."""


class TailCopyHold(enum.Enum):
    """How long the copy of a request's own partial tail is held for a connector (`take_partial_tail_offloads`)."""

    UNTIL_COPIED = "until_copied"
    """Like every copy, until the step is planned (from 0.29; the connector takes its own reference)."""
    UNTIL_FREED = "until_freed"
    """Until the request's blocks are freed, if there is a connector (0.27 and 0.28)."""


class OutgrownAlias(enum.Enum):
    """Whether a full block is cached again for the partial tail that it was cached for before it filled up."""

    RESTORED = "restored"
    """Yes, as an alias, whenever blocks of the request are cached; for attention only (0.26 and later)."""
    REFUSED = "refused"
    """No (proposed in vLLM #49125 and #52972)."""
    REFUSED_WHEN_RUN_PAST = "refused_when_run_past"
    """No, nor is the block of a running state cached for a tail that is run past. With steps in flight the known tokens
    still end at the tail of a prompt that ends there (`allocate_slots`, `AsyncScheduler._update_request_with_output`),
    and what the block was cached for has moved to a copy (no release; from 0.32 no prompt has such a tail)."""


class SharedTail(enum.Enum):
    """When a request may hit the inside of an attention block that the step that is planned still writes. Its copy of
    the block is made before that."""

    AT_ONCE = "at_once"
    """In the same step, so that it copies what is not there yet (0.26 and later)."""
    NEXT_STEP = "next_step"
    """It is put off, as for a recurrent state of the step (no release; a repair)."""


class DraftLookAhead(enum.Enum):
    """Which of the dropping groups look past the candidate."""

    ATTENTION = "attention"
    """Those that then drop what they found there (from 0.26)."""
    EVERY_KIND = "every_kind"
    """Mamba groups as well, which never drop (up to 0.25: vLLM #43650, vllm-ascend #12038)."""


class ChunkGrid(enum.Enum):
    """On which multiples prefill chunks end, so that a state is written there (`_mamba_block_aligned_split`)."""

    MAMBA_BLOCK = "mamba_block"
    """Of the Mamba groups' block, by which states are cached (proposed in vLLM #54076)."""
    SMALLEST_BLOCK = "smallest_block"
    """Of the smallest block of any group: the engine core sets `cache_config.block_size` to it (up to 0.33). The same
    unless some group, as that of a draft model, has a smaller block than the Mamba groups."""


class ChunkGuard(enum.Enum):
    """Which chunks of a prefill have to end on that grid."""

    WHOLE_PREFILL = "whole_prefill"
    """All but the last; a block wider than the budget is run in parts that end with it (from 0.27: vLLM #51113)."""
    UP_TO_LAST_CACHEABLE = "up_to_last_cacheable"
    """Those before the last boundary at which a hit can be, which a draft model lowers by a block (0.26)."""


class StateWrites(enum.Enum):
    """Which blocks of a chunk get the state at their end, where states are written in every block."""

    EVERY_BLOCK = "every_block"
    """All that the chunk completes."""
    BLOCKS_BEGUN_BY_THE_CHUNK = "blocks_begun_by_the_chunk"
    """Those that the chunk completes, but the one in which it begins: that keeps what an earlier chunk left (some
    kernels: vLLM #34587)."""


class CheckpointStart(enum.Enum):
    """From where a chunk that ends a prefill may store a checkpoint, and run past the end of the block it begins in."""

    HASH_BOUNDARY = "hash_boundary"
    """From any hash boundary (from 0.30). A state that lies inside a block stays behind there, and is cached for the
    block's end."""
    BLOCK_BOUNDARY = "block_boundary"
    """Only from the end of a block (0.29)."""


class UnreservedCheckpoint(enum.Enum):
    """What the worker does with a checkpoint for which no block was reserved, as sparse retention has it for all but
    the last chunk of a prefill (`compute_mamba_prefill_checkpoints`)."""

    STORED_ALL_THE_SAME = "stored_all_the_same"
    """It stores it in the block that its table has in that column: perhaps a scratch block that has moved on since, of
    which its table, which only grows, keeps the old place as well (0.31 to 0.33)."""
    LEFT_OUT = "left_out"
    """Nothing (no release; a repair)."""


class DraftPadding(enum.Enum):
    """Whether a waiting request that has one token left to run gets rows without drafts, as many as the others have
    drafts (`pad_spec_decode`). No prefill may run in the step."""

    RESUMED_OR_BESIDE_DECODING = "resumed_or_beside_decoding"
    """If it has computed anything, or other requests run in the step (from 0.30)."""
    BESIDE_DECODING = "beside_decoding"
    """If other requests run in the step (0.29)."""
    BESIDE_DECODING_EVEN_IF_CUT = "beside_decoding_even_if_cut"
    """The same, but where the chunk is cut at a block boundary, the rows that are cut away count as rejected all the
    same: as many tokens are taken for not computed, of which the recurrent state is not free (0.26 to 0.28)."""
    NEVER = "never"
    """Up to 0.25."""


class LeftOut(enum.Enum):
    """What the worker knows of the drafts of a request that was left out of a step since they were accepted."""

    REMEMBERED = "remembered"
    """How many there were, so where the state lies (V2 runner: it keeps a slot for each request)."""
    FORGOTTEN = "forgotten"
    """Nothing: it goes on from the state of the last token before them. A request that is left out leaves the batch,
    and is added to it anew (`InputBatch.add_request`; older runner, 0.23 to 0.33)."""


class AcceptedDrafts(enum.Enum):
    """When blocks are cached that accepted drafts complete (`update_from_output`). Steps in flight aside."""

    AT_ONCE = "at_once"
    """When the step has executed (from 0.33)."""
    WITH_THE_NEXT_STEP = "with_the_next_step"
    """When the request runs again, unless its block is out of sight by then (up to 0.32)."""
