"""Speculative decoding: drafts that a step verifies, and the scratch blocks in which their states are kept.

Mirrors the speculative parts of `MambaManager.allocate_new_blocks` (vllm/v1/core/single_type_kv_cache_manager.py) and
of `Scheduler.schedule`, and, for the worker, `preprocess_mamba` and `postprocess_mamba_fused_kernel`
(vllm/v1/worker/mamba_utils.py). A step verifies the drafts of a request behind its next token, one row each: row i
writes its state i columns behind the running one, so that the state of whatever is accepted exists. Nothing here
happens without drafts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from model.actions import Action, Execute, Step
from model.configuration import Configuration
from model.geometry import column_ending_at, floor_to
from model.plan import Chunk, StepPlan, Table
from model.pool import NULL_BLOCK, EngineAssertion, Pool
from model.request import Request
from model.rules.states import DraftPadding
from model.tokens import UNKNOWN_TOKEN, Prefix
from model.values import evolve


@attrs.frozen
class Batch:
    """What a step can still do for a request that waits: run `budget` tokens, beside running requests that it `runs`,
    a prefill among them (`prefills`)."""

    budget: int
    runs: bool = False
    prefills: bool = False


def padding_of(configuration: Configuration, request: Request, start: int, batch: Batch) -> int:
    """Rows that are added to the one token that a waiting request has left to run, so that all requests of the step
    have as many (`pad_spec_decode`). They hold no drafts, and all are rejected."""
    rule = configuration.release.draft_padding
    if rule is DraftPadding.NEVER or len(request.tokens) - start != 1 or batch.prefills:
        return 0
    resumes = start > 0 and rule is DraftPadding.RESUMED_OR_BESIDE_DECODING
    return configuration.drafts if batch.runs or resumes else 0


def relocate(pool: Pool, table: Table, columns: int, scratch: int, skipped: int) -> Table:
    """The last `scratch` of the first `columns` blocks of `table` move behind it as far as they lie in the first
    `skipped` columns: the chunk ends farther on (`_relocate_speculative_block`, which checks them from 0.29 on)."""
    moved = table
    for column in range(columns - scratch, min(columns, skipped)):
        block = table[column]
        if block == NULL_BLOCK or pool.refs[block] != 1 or pool.labels[block] is not None:
            raise EngineAssertion(f"scratch block {block} is to be moved, and is cached or has more than one owner")
        moved = (*moved[:column], NULL_BLOCK, *moved[column + 1 :], block)
    return moved


def verified(chunk: Chunk, text_length: int, rejected: int) -> Chunk:
    """The chunk once its last `rejected` drafts turn out to be wrong. The text of the request, of `text_length` tokens,
    ends with a token that is sampled."""
    if not chunk.drafts:
        return chunk
    wrong = min(chunk.drafts, max(chunk.rejected, rejected, chunk.end - (text_length - 1)))
    prefix = chunk.prefix[: chunk.end - wrong] + (UNKNOWN_TOKEN,) * wrong
    return evolve(chunk, rejected=wrong, prefix=prefix)


def drafts_of(plan: StepPlan) -> dict[str, int]:
    """How many drafts the plan verifies for each request; rows without drafts do not count."""
    return {chunk.request: chunk.drafts for chunk in plan.chunks if chunk.drafts > chunk.rejected}


def with_drafts_verified(plan: StepPlan, action: Action, texts: Mapping[str, Prefix]) -> StepPlan:
    """The plan with what `action` says of the drafts that it verifies."""
    if not any(chunk.drafts for chunk in plan.chunks):
        return plan
    rejected = {each.request: each.drafts for each in action.rejected} if isinstance(action, Step | Execute) else {}
    chunks = (verified(chunk, len(texts[chunk.request]), rejected.get(chunk.request, 0)) for chunk in plan.chunks)
    return evolve(plan, chunks=tuple(chunks))


def draft_states(chunk: Chunk, block: int) -> Iterator[tuple[int, int]]:
    """(boundary, column) of the states that a chunk with drafts writes, row by row: `block` is the Mamba block."""
    running = column_ending_at(chunk.end, block)
    first = chunk.end - chunk.drafts
    return ((first + row, running + row) for row in range(chunk.drafts + 1))


@attrs.frozen
class CopyBack:
    """The state in column `source` is copied to column `destination`, the one that ends where the state does."""

    source: int
    destination: int


def copy_back(chunk: Chunk, block: int) -> CopyBack | None:
    """What is copied after acceptance: the state at the last block boundary that the accepted tokens reach, if the
    chunk wrote it in another column than its own; None if there is nothing to copy."""
    first, running = chunk.end - chunk.drafts, column_ending_at(chunk.end, block)
    boundary = floor_to(chunk.settled, block)
    if not chunk.drafts or boundary < first:
        return None
    source, destination = running + boundary - first, column_ending_at(boundary, block)
    return None if source == destination else CopyBack(source, destination)


def accepted_offset(chunk: Chunk, block: int) -> int:
    """How many columns behind the running one the state lies from which the next chunk goes on; none if it was copied
    back to the running column."""
    saved = copy_back(chunk, block)
    if saved is not None and saved.destination == column_ending_at(chunk.end, block):
        return 0
    return chunk.drafts - chunk.rejected
