"""What changed in the scheduler and the worker between releases, beside the cache-hit policy.

Each field is one rule, and its values are the rules that existed; the defaults are those of the newest release, but for
`reservation`, for every release estimates, and for `prompt_tail` and `waiting_order`, which are those of 0.28. Only
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


class PromptTail(enum.Enum):
    """Where a prompt's partial tail is cached and its prefill stopped (`_cache_partial_tail_block`)."""

    WITHIN_PROMPT = "within_prompt"
    """The last one of the prompt, also where the prompt ends there, which no repeated prompt can hit (up to 0.31)."""
    BELOW_LAST_TOKEN = "below_last_token"
    """The last one below the prompt's last token (from 0.32); the last whole block of a prefill likewise."""


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


class WaitingOrder(enum.Enum):
    """Which of the requests that wait are tried before the others (`skipped_waiting`, `kv_holding_waiting`)."""

    SKIPPED_FIRST = "skipped_first"
    """Those that were tried and had to go on waiting, for a load or for an answer (up to 0.30)."""
    HOLDERS_FIRST = "holders_first"
    """Those that hold blocks; the others keep their turn (from 0.31)."""


@attrs.frozen
class Release:
    """The rules of one release; see each rule for what it governs."""

    adoption: Adoption = Adoption.ALL_HITS_FIRST
    prompt_tail: PromptTail = PromptTail.BELOW_LAST_TOKEN
    truncation: Truncation = Truncation.ATTENTION_COVERS
    running_mark: RunningMark = RunningMark.EVERY_ALLOCATION
    tail_copy_hold: TailCopyHold = TailCopyHold.UNTIL_COPIED
    outgrown_alias: OutgrownAlias = OutgrownAlias.RESTORED
    shared_tail: SharedTail = SharedTail.AT_ONCE
    reservation: Reservation = Reservation.BY_TAKING
    window_publication: WindowPublication = WindowPublication.EVERY_HIT_BOUNDARY
    waiting_order: WaitingOrder = WaitingOrder.SKIPPED_FIRST
    draft_groups: DraftGroups = DraftGroups.HOLDING_DRAFT_LAYERS
    draft_drop: DraftDrop = DraftDrop.PAST_THE_CAP
    draft_look_ahead: DraftLookAhead = DraftLookAhead.ATTENTION
    chunk_grid: ChunkGrid = ChunkGrid.MAMBA_BLOCK
    chunk_guard: ChunkGuard = ChunkGuard.WHOLE_PREFILL
    replay_boundaries: ReplayBoundaries = ReplayBoundaries.AFTER_THE_DROP
    junction_retention: JunctionRetention = JunctionRetention.AND_A_BLOCK_LOWER
    junction_rule: JunctionRule = JunctionRule.LONGEST_GROUP


NEWEST = Release()

_BEFORE_033 = Release(junction_retention=JunctionRetention.ITSELF)
_BEFORE_032 = attrs.evolve(_BEFORE_033, draft_drop=DraftDrop.WITHIN_THE_CAP, prompt_tail=PromptTail.WITHIN_PROMPT)
_BEFORE_030 = attrs.evolve(_BEFORE_032, replay_boundaries=ReplayBoundaries.PROMPT_END)
_BEFORE_029 = attrs.evolve(
    _BEFORE_030,
    tail_copy_hold=TailCopyHold.UNTIL_FREED,
    window_publication=WindowPublication.SCHEDULER_BLOCKS,
)
_BEFORE_028 = attrs.evolve(
    _BEFORE_029,
    truncation=Truncation.EVERY_GROUP_COVERS,
    running_mark=RunningMark.NEW_STATE_BLOCK,
)
_BEFORE_027 = attrs.evolve(
    _BEFORE_028, tail_copy_hold=TailCopyHold.UNTIL_COPIED, chunk_guard=ChunkGuard.UP_TO_LAST_CACHEABLE
)
_BEFORE_026 = attrs.evolve(_BEFORE_027, draft_look_ahead=DraftLookAhead.EVERY_KIND)

RELEASES: dict[str, Release] = {
    "0.23": attrs.evolve(_BEFORE_026, adoption=Adoption.GROUP_BY_GROUP),
    "0.24": _BEFORE_026,
    "0.26": _BEFORE_027,
    "0.27": _BEFORE_028,
    "0.28": _BEFORE_029,
    "0.29": _BEFORE_030,
    "0.30": _BEFORE_032,
    "0.32": _BEFORE_033,
    "0.33": NEWEST,
}
"""Rules by the release in which the set appeared first. Left to the default, for all of them alike: `reservation`, and
the rule of 0.31 that orders queues in another way, `waiting_order`."""


def rules_of(version: str) -> Release:
    """The rules of a vLLM release ("0.28.0"): of the newest set that appeared no later."""
    sets = {_number(name): rules for name, rules in RELEASES.items()}
    return sets[max((number for number in sets if number <= _number(version)), default=min(sets))]


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
