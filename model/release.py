"""Which rule each release has in the scheduler and the worker, beside the cache-hit policy; the rules: model/rules.

Each field is one rule, and its values are the rules that existed; the defaults are those of the newest release, but for
`reservation`, for every release estimates, and for `waiting_order`, which is that of 0.28. Only switches that something
reads belong here. A `Configuration` has a release; a policy is chosen apart from it.
"""

from __future__ import annotations

import attrs

from model.rules.loads import AfterLoad, FailedTransfer, FailureNames, Recovery, ResumeColumn, RunnerPosition
from model.rules.lookup import (
    DraftDrop,
    DraftGroups,
    JunctionRetention,
    JunctionRule,
    PerGroupBlocks,
    PromptTail,
    ReplayBoundaries,
    ShardedHits,
    SkippedReading,
    TailStop,
    Truncation,
    WindowPublication,
)
from model.rules.scheduling import (
    AbortedChunks,
    Adoption,
    FencedVictim,
    Freeing,
    NextRunning,
    PreemptedChunk,
    Reservation,
    Resumption,
    Retirement,
    StateRetirement,
    Visibility,
    WaitingOrder,
)
from model.rules.states import (
    AcceptedDrafts,
    CheckpointStart,
    ChunkGrid,
    ChunkGuard,
    DraftLookAhead,
    DraftPadding,
    LeftOut,
    OutgrownAlias,
    RunningMark,
    SharedTail,
    StateWrites,
    TailCopyHold,
    UnreservedCheckpoint,
)


@attrs.frozen
class Release:
    """The rules of one release; see each rule for what it governs."""

    adoption: Adoption = Adoption.ALL_HITS_FIRST
    visibility: Visibility = Visibility.NEXT_STEP
    aborted_chunks: AbortedChunks = AbortedChunks.EXECUTED
    retirement: Retirement = Retirement.PROCESSED
    state_retirement: StateRetirement = StateRetirement.EVERY_COLUMN
    freeing: Freeing = Freeing.FENCED
    fenced_victim: FencedVictim = FencedVictim.SPARED
    recovery: Recovery = Recovery.PREEMPTED
    failure_names: FailureNames = FailureNames.ENTRIES
    failed_transfer: FailedTransfer = FailedTransfer.UNDONE
    runner_position: RunnerPosition = RunnerPosition.PLANNED
    resume_column: ResumeColumn = ResumeColumn.OWN_BLOCK
    after_load: AfterLoad = AfterLoad.NOT_ASKED
    resumption: Resumption = Resumption.AS_RESUMED
    skipped_reading: SkippedReading = SkippedReading.NOTHING
    prompt_tail: PromptTail = PromptTail.BELOW_LAST_TOKEN
    tail_stop: TailStop = TailStop.WHERE_HITS_END
    truncation: Truncation = Truncation.ATTENTION_COVERS
    running_mark: RunningMark = RunningMark.EVERY_ALLOCATION
    tail_copy_hold: TailCopyHold = TailCopyHold.UNTIL_COPIED
    outgrown_alias: OutgrownAlias = OutgrownAlias.RESTORED
    shared_tail: SharedTail = SharedTail.AT_ONCE
    reservation: Reservation = Reservation.BY_TAKING
    window_publication: WindowPublication = WindowPublication.EVERY_HIT_BOUNDARY
    sharded_hits: ShardedHits = ShardedHits.HASH_BOUNDARIES
    per_group_blocks: PerGroupBlocks = PerGroupBlocks.OF_ALL_RANKS
    waiting_order: WaitingOrder = WaitingOrder.SKIPPED_FIRST
    preempted_chunk: PreemptedChunk = PreemptedChunk.KEPT
    next_running: NextRunning = NextRunning.AFTER_ITSELF_TOO
    draft_groups: DraftGroups = DraftGroups.HOLDING_DRAFT_LAYERS
    draft_drop: DraftDrop = DraftDrop.PAST_THE_CAP
    draft_look_ahead: DraftLookAhead = DraftLookAhead.ATTENTION
    chunk_grid: ChunkGrid = ChunkGrid.MAMBA_BLOCK
    chunk_guard: ChunkGuard = ChunkGuard.WHOLE_PREFILL
    state_writes: StateWrites = StateWrites.EVERY_BLOCK
    checkpoint_start: CheckpointStart = CheckpointStart.HASH_BOUNDARY
    unreserved_checkpoint: UnreservedCheckpoint = UnreservedCheckpoint.STORED_ALL_THE_SAME
    replay_boundaries: ReplayBoundaries = ReplayBoundaries.AFTER_THE_DROP
    junction_retention: JunctionRetention = JunctionRetention.AND_A_BLOCK_LOWER
    junction_rule: JunctionRule = JunctionRule.LONGEST_GROUP
    draft_padding: DraftPadding = DraftPadding.RESUMED_OR_BESIDE_DECODING
    accepted_drafts: AcceptedDrafts = AcceptedDrafts.AT_ONCE
    left_out: LeftOut = LeftOut.REMEMBERED


NEWEST = Release()

REPAIRED = attrs.evolve(
    NEWEST,
    shared_tail=SharedTail.NEXT_STEP,
    checkpoint_start=CheckpointStart.BLOCK_BOUNDARY,
    preempted_chunk=PreemptedChunk.WITHDRAWN,
    unreserved_checkpoint=UnreservedCheckpoint.LEFT_OUT,
)
"""The newest release without what is known to be wrong in the rules beside its policy (docs/findings)."""

_AT_032 = Release(
    junction_retention=JunctionRetention.ITSELF,
    accepted_drafts=AcceptedDrafts.WITH_THE_NEXT_STEP,
    next_running=NextRunning.UNLESS_ITSELF,
)
_AT_031 = attrs.evolve(_AT_032, draft_drop=DraftDrop.WITHIN_THE_CAP, prompt_tail=PromptTail.WITHIN_PROMPT)
_AT_030 = attrs.evolve(_AT_031, skipped_reading=SkippedReading.EXTERNAL)
_AT_029 = attrs.evolve(
    _AT_030,
    replay_boundaries=ReplayBoundaries.PROMPT_END,
    state_retirement=StateRetirement.TO_THE_FIRST_NULL,
    fenced_victim=FencedVictim.PREEMPTED,
    draft_padding=DraftPadding.BESIDE_DECODING,
)
_AT_028 = attrs.evolve(
    _AT_029,
    tail_copy_hold=TailCopyHold.UNTIL_FREED,
    window_publication=WindowPublication.SCHEDULER_BLOCKS,
    draft_padding=DraftPadding.BESIDE_DECODING_EVEN_IF_CUT,
    sharded_hits=ShardedHits.SCHEDULER_BLOCKS,
    per_group_blocks=PerGroupBlocks.OF_ONE_RANK,
)
_AT_027 = attrs.evolve(
    _AT_028,
    tail_stop=TailStop.BELOW_THE_SCHEDULER_BLOCK,
    truncation=Truncation.EVERY_GROUP_COVERS,
    running_mark=RunningMark.NEW_STATE_BLOCK,
    next_running=NextRunning.MAY_PASS_OVER_ONE,
)
_AT_026 = attrs.evolve(_AT_027, tail_copy_hold=TailCopyHold.UNTIL_COPIED, chunk_guard=ChunkGuard.UP_TO_LAST_CACHEABLE)
_AT_024 = attrs.evolve(
    _AT_026,
    draft_look_ahead=DraftLookAhead.EVERY_KIND,
    retirement=Retirement.SCHEDULED,
    draft_padding=DraftPadding.NEVER,
)
_AT_023 = attrs.evolve(_AT_024, adoption=Adoption.GROUP_BY_GROUP, freeing=Freeing.AT_ONCE)

RELEASES: dict[str, Release] = {
    "0.23": _AT_023,
    "0.24": _AT_024,
    "0.26": _AT_026,
    "0.27": _AT_027,
    "0.28": _AT_028,
    "0.29": _AT_029,
    "0.30": _AT_030,
    "0.31": _AT_031,
    "0.32": _AT_032,
    "0.33": NEWEST,
}
"""Rules by the release in which the set appeared first. Left to the default, for all of them alike: `reservation`,
the rule of 0.31 that orders queues in another way, `waiting_order`, `recovery`, for no release has one that is sound
for several groups, what is a matter of groups with different blocks, `chunk_grid` and `resume_column`, and `left_out`,
a matter of the runner."""


def rules_of(version: str) -> Release:
    """The rules of a vLLM release ("0.28.0"): of the newest set that appeared no later."""
    sets = {number_of(name): rules for name, rules in RELEASES.items()}
    return sets[max((number for number in sets if number <= number_of(version)), default=min(sets))]


def number_of(version: str) -> tuple[int, ...]:
    """The two numbers by which releases are told apart, of "0.33.0" as of "0.33.0+local"."""
    parts = version.split("+")[0].split(".")[:2]
    return tuple(int(part) if part.isdecimal() else 0 for part in parts)
