"""One request as the scheduler sees it: its tokens, how far they are computed, and its block tables."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from model.actions import ScriptedAnswer
from model.plan import Load, Table
from model.pool import Label
from model.tokens import Prefix


class Status(enum.Enum):
    """Where a request stands (vLLM: `RequestStatus`; LOADING to LOAD_FAILED are its WAITING_FOR_REMOTE_KVS)."""

    WAITING = "waiting"
    RUNNING = "running"
    LOADING = "loading"
    LOADED = "loaded"
    LOAD_FAILED = "load_failed"
    ABORTED_LOADING = "aborted_loading"
    """Aborted while its load is under way: its blocks are held until the load has ended."""


@attrs.frozen
class Checkpoint:
    """A state that a chunk stores beside the one at its end: at `boundary` tokens, in `column`."""

    boundary: int
    column: int


@attrs.frozen(slots=False)
class Request:
    """`tokens` are the known tokens, prompt and sampled output; `unsampled` is the output still to come.

    `computed` counts tokens whose KV and state exist; `published` counts, per group, the columns already considered
    for publication (vLLM: `num_cached_block`). `asked` counts how often each leaf was asked. `loads` are the
    asynchronous loads that were announced. `started` is false until the first chunk after an admission is planned.
    `hit_withdrawn` marks a loading request whose local hit was lost to a failed load of another: its own load counts as
    failed then. `junction` is the longest prefix (tokens) that some group had cached beyond the last reconciled hit, or
    0 (vLLM: `shared_prefix_boundary`). `tails` are the (group, column) whose block is cached for a partial tail and has
    to be copied before the request writes on (vLLM: `_partial_hit_reqs`). `unmarked` says that it has not taken a
    recurrent block yet and counts as one that never ran (see `RunningMark`). `held` are blocks outside its tables that
    are freed with it (see `TailCopyHold`). `prefilling` marks a request whose remaining blocks are kept free for it
    (vLLM: `_inflight_prefills`; see `Reservation`). `transferred` names the peer leaves to which the request was
    announced: their source is used up. `reported` says that its load has ended, and that another leaf has still to
    report one. `promises` are the objects that stores keep for their last answers, as long as these are not used.
    `checkpoint` is that of its latest chunk. `drafts` counts the draft tokens that its next chunk verifies (vLLM:
    `spec_token_ids`).

    With several steps in flight: `placeholders` counts output tokens that are scheduled and not sampled, `in_flight`
    the tokens of chunks in flight, and `stale` those among them that were planned before the request was preempted. The
    output of stale chunks is still delivered, unless `drop_stale` (vLLM: `num_output_placeholders`,
    `num_in_flight_tokens`, `num_stale_output_tokens`, `drop_stale_output`). `last_state` is the column that was last
    before the newest recurrent block was taken (see `StateRetirement`).

    `rerun_to` is the end of a hit of which the last tokens are run again: below it nothing is written (vLLM:
    `replay_start`); 0 if none are.
    """

    name: str
    tokens: Prefix
    prompt_length: int
    unsampled: Prefix
    answers: Mapping[str, tuple[ScriptedAnswer, ...]]
    asked: Mapping[str, int]
    skip_reading: bool = False
    priority: int = 0
    status: Status = Status.WAITING
    computed: int = 0
    tables: tuple[Table, ...] = ()
    published: tuple[int, ...] = ()
    loads: tuple[Load, ...] = ()
    started: bool = False
    hit_withdrawn: bool = False
    junction: int = 0
    tails: tuple[tuple[int, int], ...] = ()
    unmarked: bool = False
    held: Table = ()
    prefilling: bool = False
    transferred: frozenset[str] = frozenset()
    reported: bool = False
    promises: frozenset[tuple[str, Label]] = frozenset()
    checkpoint: Checkpoint | None = None
    placeholders: int = 0
    in_flight: int = 0
    stale: int = 0
    drop_stale: bool = False
    last_state: int | None = None
    drafts: int = 0
    rerun_to: int = 0

    @property
    def text(self) -> Prefix:
        """Prompt and whole output, sampled or not."""
        return self.tokens + self.unsampled

    @property
    def uncomputed(self) -> int:
        """Known tokens that are still to be scheduled."""
        return max(0, len(self.tokens) - self.computed)

    @property
    def scheduled_length(self) -> int:
        """Known tokens, placeholders and drafts: what there is to schedule."""
        return len(self.tokens) + self.placeholders + self.drafts

    @property
    def ends_in_flight(self) -> bool:
        """Whether the chunks in flight are sure to bring its last output token."""
        return self.placeholders > 0 and self.computed + 2 - self.placeholders >= len(self.text)
