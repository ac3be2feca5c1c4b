"""What changed in the scheduler and the worker between releases, beside the cache-hit policy.

Each field is one rule, and its values are the rules that existed; the defaults are those of the newest release. Only
switches that something reads belong here. A `Configuration` has a release; a policy is chosen apart from it.
"""

from __future__ import annotations

import enum

import attrs


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


class Freeing(enum.Enum):
    """When blocks are free that a request loses while steps in flight may still write them. With a connector only."""

    FENCED = "fenced"
    """Once the newest of these steps has executed (`defer_block_free`, vLLM #45357, in 0.24)."""
    AT_ONCE = "at_once"
    """At once (up to 0.23): an asynchronous load into them is not ordered after those writes."""


class Recovery(enum.Enum):
    """What becomes of requests whose synchronous load failed (`_handle_invalid_blocks`)."""

    PREEMPTED = "preempted"
    """They are preempted with all that depends on the failed blocks, which lose their hashes (vLLM #56733)."""
    IN_PLACE = "in_place"
    """They keep their blocks, hashes too, and run again from their first failed block, or from 0 if there are several
    groups; so do others that hold a failed block (0.30)."""
    ONE_GROUP = "one_group"
    """IN_PLACE, but with several groups the engine stops with an exception (up to 0.29, vLLM #50388)."""
    UNNOTICED = "unnoticed"
    """Failures are named by request, and only an asynchronous load is asked about: nothing happens (from 0.31)."""


class FailedTransfer(enum.Enum):
    """What becomes of a request whose asynchronous load failed."""

    UNDONE = "undone"
    """It loses its blocks and starts from a new admission (`_handle_failed_recving`)."""
    KEPT = "kept"
    """It goes on as if it had been loaded: the destination was bound to it when the load was announced (SGLang before
    #30986)."""


class RunnerPosition(enum.Enum):
    """Where the worker takes the position of a running request from."""

    PLANNED = "planned"
    """From the plan (`num_computed_tokens` of `CachedRequestData`)."""
    OWN = "own"
    """From what it ran before, whatever the scheduler has rewound since (V2 runner, vLLM #49250)."""


@attrs.frozen
class Release:
    """The rules of one release; see each rule for what it governs."""

    adoption: Adoption = Adoption.ALL_HITS_FIRST
    visibility: Visibility = Visibility.NEXT_STEP
    aborted_chunks: AbortedChunks = AbortedChunks.EXECUTED
    retirement: Retirement = Retirement.PROCESSED
    freeing: Freeing = Freeing.FENCED
    recovery: Recovery = Recovery.PREEMPTED
    failed_transfer: FailedTransfer = FailedTransfer.UNDONE
    runner_position: RunnerPosition = RunnerPosition.PLANNED


NEWEST = Release()

RELEASES: dict[str, Release] = {
    "0.23": Release(
        adoption=Adoption.GROUP_BY_GROUP,
        retirement=Retirement.SCHEDULED,
        freeing=Freeing.AT_ONCE,
        recovery=Recovery.ONE_GROUP,
    ),
    "0.24": Release(retirement=Retirement.SCHEDULED, recovery=Recovery.ONE_GROUP),
    "0.26": Release(recovery=Recovery.ONE_GROUP),
    "0.30": Release(recovery=Recovery.IN_PLACE),
    "0.31": Release(recovery=Recovery.UNNOTICED),
}
"""Rules by the release in which the set appeared first."""
