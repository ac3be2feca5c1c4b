"""What changed in the scheduler and the worker between releases, beside the cache-hit policy.

Each field is one rule, and its values are the rules that existed; the defaults are those of the newest release, but for
`reservation`, for every release estimates, and for `waiting_order`, which is that of 0.28. Only switches that something
reads belong here. A `Configuration` has a release; a policy is chosen apart from it.
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


class FailureNames(enum.Enum):
    """How what a synchronous load failed to fill is named, to find out whom it concerns (`invalid_block_ids`)."""

    ENTRIES = "entries"
    """By request, group and block (proposed in vLLM #54733): what has changed hands since is another block."""
    BLOCK_NUMBERS = "block_numbers"
    """By bare numbers: whoever holds a block of that number now, in any group."""


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


class ResumeColumn(enum.Enum):
    """By which block the worker finds the column of the state from which a request starts that has a hit (`add_request`
    of `MambaHybridModelState`)."""

    OWN_BLOCK = "own_block"
    """By that of the Mamba groups (from 0.32, and the older runner)."""
    SMALLEST_BLOCK = "smallest_block"
    """By the smallest of any group, to which the engine core sets `cache_config.block_size` (the newer runner from 0.26
    to 0.31: vLLM #53142, #55600)."""


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


class Reservation(enum.Enum):
    """How it is found out whether enough blocks are free (`get_num_blocks_to_allocate`, `allocate_slots`)."""

    BY_TAKING = "by_taking"
    """The blocks are taken, and all is undone if they do not suffice: no estimate, so none that is wrong."""
    ESTIMATED = "estimated"
    """An estimate is compared with the free blocks, less what running prefills and loads still need if the request
    loads asynchronously; the engine stops if it was too low (from 0.31)."""
    ESTIMATED_WITH_STATE = "estimated_with_state"
    """The same, but a recurrent group that needs only the copy of a tail counts a state block too (up to 0.30)."""


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
