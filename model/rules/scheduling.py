"""The rules of scheduling: requests that wait, run, are preempted and end, and the blocks they give back."""

from __future__ import annotations

import enum


class Adoption(enum.Enum):
    """In which order an admission references hit blocks and takes new ones (`allocate_new_computed_blocks`)."""

    ALL_HITS_FIRST = "all_hits_first"
    """Every group's hits are referenced before any block is taken (vLLM #44409, in 0.24)."""
    GROUP_BY_GROUP = "group_by_group"
    """Each group references its hits and takes its external blocks before the next group's turn (up to 0.23)."""


class Visibility(enum.Enum):
    """From when on a published recurrent state may be hit. A request that hits it earlier is put off."""

    SAME_STEP = "same_step"
    """At once, in the step that writes it (before vLLM #29387)."""
    NEXT_STEP = "next_step"
    """When the next step is scheduled, executed or not (`MambaManager.cached_blocks_this_step`)."""
    COMMITTED = "committed"
    """Once the step that writes it has executed. What a cancelled chunk had published is withdrawn (vLLM #56525)."""


class AbortedChunks(enum.Enum):
    """What becomes of the chunks of a request that is aborted while they are in flight."""

    EXECUTED = "executed"
    """They run: the worker hears of the abort with the next step (`finished_req_ids`)."""
    CANCELLED = "cancelled"
    """They never run (what vLLM #56525 reports of a checkpoint that was published and never written)."""


class Retirement(enum.Enum):
    """Up to which token the columns of a running request are retired (`remove_skipped_blocks`)."""

    PROCESSED = "processed"
    """What steps have executed (vLLM #47728, in 0.26)."""
    SCHEDULED = "scheduled"
    """What is scheduled, in flight included (up to 0.25)."""


class StateRetirement(enum.Enum):
    """Which columns of a recurrent group are looked at when superseded states are released. With one step in flight
    both release the same."""

    EVERY_COLUMN = "every_column"
    """All, whatever null columns lie between them (`_num_retired_blocks`, from 0.30)."""
    TO_THE_FIRST_NULL = "to_the_first_null"
    """Back to the first null column, and the one that was last before the newest block was taken
    (`last_state_block_idx`, up to 0.29): with steps in flight a state between null columns stays until the request
    ends."""


class Freeing(enum.Enum):
    """When blocks are free that a request loses while steps in flight may still write them. With a connector only."""

    FENCED = "fenced"
    """Once the newest of these steps has executed (`defer_block_free`, vLLM #45357, in 0.24)."""
    AT_ONCE = "at_once"
    """At once (up to 0.23): an asynchronous load into them is not ordered after those writes."""


class FencedVictim(enum.Enum):
    """What happens if a running request needs blocks, and those of the request to be preempted are free only later."""

    SPARED = "spared"
    """Nobody is preempted, and the step ends there (vLLM #49675)."""
    PREEMPTED = "preempted"
    """It is preempted, although that frees nothing now, and so is the next one (before vLLM #49675)."""


class Resumption(enum.Enum):
    """How the worker gets a request that was preempted and then loaded asynchronously."""

    AS_RESUMED = "as_resumed"
    """With all its tokens (vLLM #31583)."""
    AS_NEW = "as_new"
    """As one that has just arrived, with its prompt only: its status was lost while it loaded (before vLLM #31583)."""


class Reservation(enum.Enum):
    """How it is found out whether enough blocks are free (`get_num_blocks_to_allocate`, `allocate_slots`)."""

    BY_TAKING = "by_taking"
    """The blocks are taken, and all is undone if they do not suffice: no estimate, so none that is wrong."""
    ESTIMATED = "estimated"
    """An estimate is compared with the free blocks, less what running prefills and loads still need if the request
    loads asynchronously; the engine stops if it was too low (from 0.31)."""
    ESTIMATED_WITH_STATE = "estimated_with_state"
    """The same, but a recurrent group that needs only the copy of a tail counts a state block too (up to 0.30)."""


class WaitingOrder(enum.Enum):
    """Which of the requests that wait are tried before the others (`skipped_waiting`, `kv_holding_waiting`)."""

    SKIPPED_FIRST = "skipped_first"
    """Those that were tried and had to go on waiting, for a load or for an answer (up to 0.30)."""
    HOLDERS_FIRST = "holders_first"
    """Those that hold blocks; the others keep their turn (from 0.31)."""


class PreemptedChunk(enum.Enum):
    """What becomes of the hashes of a chunk that is taken out of its step again, because its request is preempted."""

    KEPT = "kept"
    """They stay, though no step runs the chunk (0.23 to 0.33)."""
    WITHDRAWN = "withdrawn"
    """They are withdrawn (proposed in vLLM #43569; reported in vLLM #57580)."""


class NextRunning(enum.Enum):
    """Which running request is next when another one was preempted by priority (`req_index`)."""

    AFTER_ITSELF_TOO = "after_itself_too"
    """The next one, also if the request that needed blocks was preempted itself (from 0.33)."""
    UNLESS_ITSELF = "unless_itself"
    """The next one; but if it was preempted itself, the step ends there (0.28 to 0.32)."""
    MAY_PASS_OVER_ONE = "may_pass_over_one"
    """The same, but if one was preempted that stood before it and is not in the step, one request is passed over (up to
    0.27: vLLM #49097)."""
