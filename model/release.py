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


class AfterLoad(enum.Enum):
    """Whether the connector is asked about a request whose asynchronous load has completed."""

    NOT_ASKED = "not_asked"
    """It goes on from R (vLLM #18232)."""
    ASKED_AGAIN = "asked_again"
    """It is asked from R, and what it answers is loaded as well (before vLLM #18232)."""


class Resumption(enum.Enum):
    """How the worker gets a request that was preempted and then loaded asynchronously."""

    AS_RESUMED = "as_resumed"
    """With all its tokens (vLLM #31583)."""
    AS_NEW = "as_new"
    """As one that has just arrived, with its prompt only: its status was lost while it loaded (before vLLM #31583)."""


class SkippedReading(enum.Enum):
    """What a request may use that is not to read the prefix cache (`skip_reading_prefix_cache`)."""

    NOTHING = "nothing"
    """Neither local hits nor external tokens (from 0.31)."""
    EXTERNAL = "external"
    """External tokens all the same (up to 0.30)."""


class RunnerPosition(enum.Enum):
    """Where the worker takes the position of a running request from."""

    PLANNED = "planned"
    """From the plan (`num_computed_tokens` of `CachedRequestData`)."""
    OWN = "own"
    """From what it ran before, whatever the scheduler has rewound since (V2 runner, vLLM #49250)."""


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


class DraftLookAhead(enum.Enum):
    """Which of the dropping groups look past the candidate."""

    ATTENTION = "attention"
    """Those that then drop what they found there (from 0.26)."""
    EVERY_KIND = "every_kind"
    """Mamba groups as well, which never drop (up to 0.25: vLLM #43650, vllm-ascend #12038)."""


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
    after_load: AfterLoad = AfterLoad.NOT_ASKED
    resumption: Resumption = Resumption.AS_RESUMED
    skipped_reading: SkippedReading = SkippedReading.NOTHING
    draft_groups: DraftGroups = DraftGroups.HOLDING_DRAFT_LAYERS
    draft_drop: DraftDrop = DraftDrop.PAST_THE_CAP
    draft_look_ahead: DraftLookAhead = DraftLookAhead.ATTENTION


NEWEST = Release()

_AT_032 = Release(recovery=Recovery.UNNOTICED)
_AT_031 = attrs.evolve(_AT_032, draft_drop=DraftDrop.WITHIN_THE_CAP)
_AT_030 = attrs.evolve(_AT_031, recovery=Recovery.IN_PLACE, skipped_reading=SkippedReading.EXTERNAL)
_AT_026 = attrs.evolve(_AT_030, recovery=Recovery.ONE_GROUP)
_AT_024 = attrs.evolve(_AT_026, draft_look_ahead=DraftLookAhead.EVERY_KIND, retirement=Retirement.SCHEDULED)
_AT_023 = attrs.evolve(_AT_024, adoption=Adoption.GROUP_BY_GROUP, freeing=Freeing.AT_ONCE)

RELEASES: dict[str, Release] = {
    "0.23": _AT_023,
    "0.24": _AT_024,
    "0.26": _AT_026,
    "0.30": _AT_030,
    "0.31": _AT_031,
    "0.32": _AT_032,
}
"""Rules by the release in which the set appeared first."""
