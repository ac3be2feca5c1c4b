"""How many tokens of a request one step runs, so that recurrent states are written at boundaries.

Mirrors `Scheduler._mamba_block_aligned_split` (vllm/v1/core/sched/scheduler.py).
"""

from __future__ import annotations

from model.configuration import Configuration
from model.geometry import floor_to
from model.internal_checkpoint import ends_prefill
from model.partial_tails import last_boundary, prompt_tail
from model.request import Request
from model.rules.lookup import TailStop
from model.rules.states import ChunkGuard, DraftPadding
from model.speculation import Batch, padding_of
from model.values import evolve


def first_chunk(configuration: Configuration, request: Request, start: int, batch: Batch) -> tuple[int, int]:
    """Tokens that a waiting request runs from `start`, and how many of them pad its only token; no tokens if it has to
    wait, as a padded chunk does that exceeds the budget."""
    padding = padding_of(configuration, request, start, batch) if configuration.drafts else 0
    if not padding:
        return chunk_tokens(configuration, request, start, batch.budget), 0
    if 1 + padding > batch.budget:
        return 0, 0
    tokens = chunk_tokens(configuration, evolve(request, drafts=padding), start, batch.budget)
    cut = tokens < 1 + padding
    if cut and configuration.release.draft_padding is not DraftPadding.BESIDE_DECODING_EVEN_IF_CUT:
        return min(tokens, 1), 0
    return tokens, padding


def chunk_tokens(configuration: Configuration, request: Request, start: int, budget: int) -> int:
    """Tokens to run from `start` (the computed tokens) within `budget`; 0 if no aligned chunk fits.

    State is written at chunk ends, so prefill chunks end on the Mamba grid, and at the boundary of the prompt's partial
    tail. Exempt is the prompt's last chunk, whose block decode advances to the boundary.
    """
    known = len(request.tokens)
    tokens = min(request.scheduled_length - start, budget)
    block = configuration.chunk_grid
    prefill_end = max(request.prompt_length, known - 1)
    if block is None or start >= prefill_end:
        return tokens
    last_cacheable = last_boundary(configuration, known, block)
    tail = _tail_stop(configuration, request)
    if not last_cacheable < tail < request.prompt_length:
        tail = 0
    end = start + tokens
    next_boundary = floor_to(start, block) + block if start % block else 0
    if ends_prefill(configuration, request, start, end):
        # The chunk stores that state itself.
        last_cacheable = tail = next_boundary = 0
    if configuration.release.chunk_guard is ChunkGuard.WHOLE_PREFILL:
        if end < prefill_end and (floor_to(end, block) > start or block <= configuration.budget):
            end = floor_to(end, block)
    else:
        if end < last_cacheable:
            end = floor_to(end, block)
        if next_boundary > last_cacheable:
            next_boundary = 0
    # A prefix that another request shares, but of which no state is cached: cache it on the way.
    junction = floor_to(request.junction - start, block) + start if start < request.junction < end else 0
    end = min((stop for stop in (next_boundary, last_cacheable, tail, junction) if start < stop < end), default=end)
    return max(end - start, 0)


def _tail_stop(configuration: Configuration, request: Request) -> int:
    """The boundary of the prompt's partial tail as far as a prefill stops for it, in tokens; 0 if it does not."""
    unit = configuration.hash_block
    if configuration.fine_grained or configuration.release.tail_stop is TailStop.WHERE_HITS_END:
        return prompt_tail(configuration, request)
    return floor_to(request.prompt_length, unit) if unit < configuration.scheduler_block else 0
