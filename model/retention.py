"""Which full blocks of a request are cached: those that a later lookup can need and that retention lets stay.

Mirrors the `reachable_block_mask` of the managers (vllm/v1/core/single_type_kv_cache_manager.py) and
`replay_boundaries` (vllm/v1/core/kv_cache_coordinator.py). Full and chunked local attention are always cached whole; of
a sliding window and of a recurrent group only what a hit at some boundary needs.
"""

from __future__ import annotations

from model.configuration import Configuration
from model.geometry import columns_for, floor_to
from model.partial_tails import last_boundary
from model.request import Request
from model.rules.lookup import JunctionRetention, PromptTail, ReplayBoundaries, WindowPublication


def is_kept(configuration: Configuration, request: Request, index: int, column: int, tokens: int) -> bool:
    """Whether the full block in `column` of group `index` is cached, when `tokens` tokens of the request can be."""
    group, retention = configuration.groups[index], configuration.retention
    if group.window is None and (not group.recurrent or retention is None):
        return True
    # What a hit needs before its boundary, and the block after it that is dropped, in columns.
    drops = int(index in configuration.dropping and not group.recurrent)
    needed = 1 if group.window is None else columns_for(group.window - 1, group.block) + drops
    every = configuration.release.window_publication is WindowPublication.EVERY_HIT_BOUNDARY
    alignment = configuration.hit_alignment if every else configuration.scheduler_block
    segment = alignment if retention is None else retention
    columns = segment // group.block
    if segment and (needed >= columns or (column >= drops and (column - drops) % columns >= columns - needed)):
        return True
    if retention is None:
        return False
    if group.recurrent and (column + 1) * group.block == tokens == _prompt_state(configuration, request):
        return True
    aligned = (floor_to(kept, alignment) for kept in _boundaries(configuration, request, index))
    return any(-needed <= column - (boundary // group.block + drops) < 0 for boundary in aligned)


def _prompt_state(configuration: Configuration, request: Request) -> int:
    """The last hash boundary of the prompt: from 0.32 the state of a chunk that ends there is cached also if a block
    does, and whatever retention says (`_cache_partial_tail_block`); 0 before that."""
    if configuration.release.prompt_tail is PromptTail.WITHIN_PROMPT:
        return 0
    return last_boundary(configuration, request.prompt_length, configuration.hash_block)


def _boundaries(configuration: Configuration, request: Request, index: int) -> tuple[int, ...]:
    """Boundaries, in tokens, at which sparse retention keeps what a hit needs, whatever the interval."""
    kept = replay_boundaries(configuration, request.prompt_length)
    if request.junction:
        kept += (request.junction,)
        lower = configuration.release.junction_retention is JunctionRetention.AND_A_BLOCK_LOWER
        if lower and index in configuration.dropping:
            kept += (request.junction - configuration.groups[index].block,)
    return kept


def replay_boundaries(configuration: Configuration, prompt_length: int) -> tuple[int, ...]:
    """Up to where a later request can resume that begins with the same prompt, by the rule of the release, in tokens.

    The same prompt again is capped one token before its end, a longer one is not; a draft model costs either a block.
    """
    last = prompt_length - 1
    if not configuration.has_draft_model or configuration.release.replay_boundaries is ReplayBoundaries.PROMPT_END:
        return (last,)
    unit = configuration.scheduler_block
    return tuple(max(0, floor_to(boundary, unit) - unit) for boundary in (last, prompt_length))
