"""One more state inside a prefill chunk, where the backend can store it: at which boundary, in which column, and when
it stays cached.

Mirrors `get_mamba_prefill_checkpoint_position`, `is_mamba_prefill_checkpoint_valid` (vllm/v1/kv_cache_interface.py),
`MambaManager._needs_internal_checkpoint` and `_cache_partial_tail_block` (single_type_kv_cache_manager.py), as of 0.33.
The state lies in the column before the running one, whatever column its boundary would have.
"""

from __future__ import annotations

from model.configuration import Configuration
from model.geometry import columns_for
from model.partial_tails import last_boundary
from model.plan import Chunk, Table
from model.pool import NULL_BLOCK, Label, Pool
from model.request import Checkpoint, Request
from model.rules.states import CheckpointStart, UnreservedCheckpoint


def checkpoint_of(configuration: Configuration, start: int, end: int, known: int) -> Checkpoint | None:
    """The checkpoint that a chunk from `start` to `end` can store, where `known` tokens decide on its boundary (all in
    tokens); None if it can store none."""
    block, alignment = configuration.mamba_block, configuration.checkpoint_alignment
    if block is None or alignment is None:
        return None
    anywhere = configuration.release.checkpoint_start is CheckpointStart.HASH_BOUNDARY
    unit = configuration.hash_block
    boundary, column = last_boundary(configuration, known, configuration.hit_alignment), columns_for(end, block) - 2
    stored = (
        start % (unit if anywhere else block) == 0
        and column > (start - 1) // block
        and start + unit <= boundary < end
        and (boundary - start) % alignment == 0
    )
    return Checkpoint(boundary, column) if stored else None


def stored_by(configuration: Configuration, chunk: Chunk) -> Checkpoint | None:
    """The checkpoint that the worker stores in a chunk, if its table has a block in that column."""
    all_the_same = configuration.release.unreserved_checkpoint is UnreservedCheckpoint.STORED_ALL_THE_SAME
    if chunk.drafts or not (chunk.reserves or all_the_same):
        return None
    return checkpoint_of(configuration, chunk.computed, chunk.end, chunk.end)


def prefill_end(request: Request) -> int:
    """Up to where tokens are run only to be known, the output of a resumed request included."""
    return max(request.prompt_length, len(request.tokens) - 1)


def ends_prefill(configuration: Configuration, request: Request, start: int, end: int) -> bool:
    """Whether a chunk ends the prefill and stores the checkpoint itself, so that the prefill need not stop for it."""
    known = prefill_end(request)
    return end >= known and checkpoint_of(configuration, start, end, known) is not None


def reserved(configuration: Configuration, request: Request, table: Table, start: int, end: int) -> Checkpoint | None:
    """The checkpoint of a chunk for which a recurrent group takes a block, or keeps a scratch block where it lies: of
    the last chunk of a prefill, and where not only the replay boundary is cached, of each."""
    if configuration.retention == 0 and end < prefill_end(request):
        return None
    found = checkpoint_of(configuration, start, end, end)
    if found is None or found.column < 0:
        return None
    ran = request.computed > 0 and not request.unmarked
    first_scratch = len(table) - (configuration.drafts if ran else 0)
    return found if found.column >= first_scratch or table[found.column] == NULL_BLOCK else None


def publish_checkpoint(
    configuration: Configuration, pool: Pool, request: Request, index: int
) -> tuple[Pool, frozenset[Label]]:
    """Cache the checkpoint of the request's chunk for its own boundary, and not for the end of its column. It stays
    only where a later request can need it. Also returns the labels of states among what is cached."""
    checkpoint = request.checkpoint
    assert checkpoint is not None
    block, label = request.tables[index][checkpoint.column], Label(index, request.tokens[: checkpoint.boundary])
    if not _stays(configuration, request, checkpoint.boundary):
        return pool.unpublish((block,)), frozenset()
    if block == NULL_BLOCK or pool.labels[block] == label:
        return pool, frozenset()
    return pool.publish(block, label), frozenset({label})


def _stays(configuration: Configuration, request: Request, boundary: int) -> bool:
    block, retention = configuration.mamba_block, configuration.retention
    assert block is not None
    if boundary == last_boundary(configuration, request.prompt_length, configuration.hit_alignment):
        return True
    of_interval = boundary % block == 0 and (retention is None or (retention > 0 and boundary % retention == 0))
    return of_interval or boundary == request.junction
