"""How many blocks an admission or a chunk is expected to take, beside what it takes, and a request at most.

Mirrors `get_num_blocks_to_allocate` of the managers (vllm/v1/core/single_type_kv_cache_manager.py),
`KVCacheManager.allocate_slots` and `Scheduler._inflight_prefill_reserved_blocks`. Nothing is estimated under
`Reservation.BY_TAKING`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import attrs

from model.allocation import columns_out_of_sight
from model.configuration import Configuration, StateMode
from model.geometry import columns_for
from model.internal_checkpoint import reserved as checkpoint
from model.plan import Table
from model.pool import NULL_BLOCK, EngineAssertion, Pool, PoolExhausted
from model.request import Request
from model.rules.scheduling import Reservation


@attrs.frozen
class Allotment:
    """Blocks that were estimated for a request, and taken out of the free queue; one more than were free if these did
    not suffice."""

    request: str
    estimated: int
    allocated: int


Others = Collection[tuple[Request, int]]
"""All requests, each with how far it was computed before the step, in tokens."""


class ReservationTooLow(EngineAssertion):
    """The estimate found room, and then there were too few blocks."""

    def __init__(self, allotment: Allotment) -> None:
        super().__init__(f"{allotment.estimated} blocks were estimated for {allotment.request}, and more are taken")
        self.allotment = allotment


@attrs.frozen
class Need:
    """What a request is to be given: room for `tokens` tokens, of attention for `ahead` more, and, at its admission,
    `hits`, the hit blocks of `local` tokens, so that it resumes at `resume`. Without `hits` it goes on with the blocks
    that it has, from `resume` where that is given, else from where it is computed."""

    tokens: int
    hits: tuple[Table, ...] = ()
    local: int = 0
    resume: int | None = None
    ahead: int = 0


def most_blocks(configuration: Configuration, tokens: int) -> int:
    """The most blocks that one request of `tokens` tokens holds at a time: a recurrent group needs the last state, the
    loaded or hit one included, the running one of each step in flight, and a checkpoint, and scratch blocks. A partial
    tail that it hits is held until it is copied."""
    sparse = configuration.state_mode is StateMode.ALIGN
    written = tokens + configuration.drafts * configuration.steps_in_flight
    return sum(
        (
            min(configuration.most_states, columns_for(written, group.block) + configuration.drafts)
            if group.recurrent and sparse
            else columns_for(written + configuration.lookahead, group.block)
        )
        + (configuration.fine_grained and group.block > configuration.hash_block)
        for group in configuration.groups
    )


def estimate(configuration: Configuration, pool: Pool, request: Request, need: Need) -> int:
    """Blocks that `request` is expected to take out of the free queue: new ones, and hit ones that nobody holds."""
    tails = dict(request.tails)
    total = 0
    for index, group in enumerate(configuration.groups):
        hit = need.hits[index] if need.hits else ()
        held = len(hit) + (len(request.tables[index]) if request.tables else 0)
        columns = columns_for(need.tokens if group.recurrent else need.tokens + need.ahead, group.block)
        copied = int(index in tails or (bool(hit) and need.local % group.block > 0))
        if group.recurrent:
            table = request.tables[index] if request.tables else ()
            start = request.computed if need.resume is None else need.resume
            stored = checkpoint(configuration, request, table, start, need.tokens) is not None
            missing = columns + configuration.drafts - held
            first = 0 if request.computed and not request.unmarked else configuration.drafts
            total += _state_blocks(configuration, missing, copied, int(stored) + first)
        else:
            skipped = columns_out_of_sight(group, need.resume or 0) if need.hits else 0
            total += max(0, columns - max(skipped, held)) + copied
            hit = hit[skipped:]
        total += sum(block != NULL_BLOCK and pool.refs[block] == 0 for block in hit)
    return total


def _state_blocks(configuration: Configuration, missing: int, copied: int, beside: int) -> int:
    """Of a recurrent group: one block for the state at the end, the copy of a tail, and `beside`, for a checkpoint and,
    the first time, scratch blocks."""
    if copied:
        missing = max(missing, 0) + 1
    if missing <= 0:
        return 0
    whole = 1 + copied + beside
    return whole if configuration.release.reservation is Reservation.ESTIMATED_WITH_STATE else min(missing, whole)


def reserved(configuration: Configuration, pool: Pool, requests: Iterable[tuple[Request, int]]) -> int:
    """Blocks that unfinished prefills and loads still need, and the first step with drafts after it, which an
    asynchronous load must leave free. Of each request it is said how far it was computed before the step."""
    ahead = _draft_step(configuration)
    return sum(
        estimate(configuration, pool, request, Need(len(request.tokens), resume=computed, ahead=ahead))
        for request, computed in requests
        if request.prefilling
    )


def _draft_step(configuration: Configuration) -> int:
    """Attention slots of a step with drafts, in tokens, for which asynchronous loads leave room (from 0.31;
    `_request_remaining_blocks`)."""
    if not configuration.drafts or configuration.release.reservation is not Reservation.ESTIMATED:
        return 0
    return 1 + configuration.drafts + configuration.lookahead


def _own_draft_step(configuration: Configuration) -> int:
    """Blocks of the same step of the loading request itself (`_spec_decode_step_blocks`, as of 0.32)."""
    ahead = _draft_step(configuration)
    return sum(columns_for(ahead, group.block) for group in configuration.groups if not group.recurrent)


def estimated(
    configuration: Configuration, pool: Pool, request: Request, need: Need, others: Others | None = None
) -> int | None:
    """The estimate, None if there is none. Raises PoolExhausted if fewer blocks are free. With `others` the request
    loads asynchronously: what they still need does not count as free, nor does the first step of the request."""
    if configuration.release.reservation is Reservation.BY_TAKING:
        return None
    blocks = estimate(configuration, pool, request, need)
    spared = 0 if others is None else reserved(configuration, pool, others) + _own_draft_step(configuration)
    if blocks > len(pool.free) - spared:
        raise PoolExhausted(f"{blocks} blocks estimated, {len(pool.free)} free")
    return blocks


def allotment(request: str, expected: int | None, before: Pool, after: Pool | None) -> tuple[Allotment, ...]:
    """What became of an estimate; nothing if there was none. `after` is None if there were too few blocks. Raises
    ReservationTooLow."""
    if expected is None:
        return ()
    if after is None:
        raise ReservationTooLow(Allotment(request, expected, len(before.free) + 1))
    return (Allotment(request, expected, len(before.free) - len(after.free)),)
