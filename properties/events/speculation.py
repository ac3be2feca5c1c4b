"""Events of speculative decoding: drafts, the scratch blocks of their states, and what becomes of both."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from model.plan import Chunk
from model.pool import NULL_BLOCK
from model.speculation import copy_back
from model.system import Observation
from properties.features import Feature
from properties.invariant import Sometimes, draws


def _with_drafts(observation: Observation) -> Iterator[Chunk]:
    """Executed chunks of requests whose drafts were verified. Only a request that waited gets rows without drafts."""
    chunks = () if observation.plan is None else observation.plan.chunks
    return (chunk for chunk in chunks if chunk.drafts and not chunk.starts)


def _padded(observation: Observation) -> bool:
    chunks = () if observation.plan is None else observation.plan.chunks
    return any(chunk.drafts and chunk.starts for chunk in chunks)


def _copied_back(observation: Observation) -> bool:
    block = observation.after.configuration.mamba_block
    return block is not None and any(copy_back(chunk, block) for chunk in _with_drafts(observation))


def _relocated(observation: Observation) -> bool:
    """A block of a request leaves its column for a later one."""
    if observation.planned is None:
        return False
    before, after = observation.before.scheduler.requests, observation.after.scheduler.requests
    return any(
        block != NULL_BLOCK and old.index(block) < len(new) and new[old.index(block)] == NULL_BLOCK and block in new
        for name in before.keys() & after.keys()
        for old, new in zip(before[name].tables, after[name].tables, strict=False)
        for block in old
    )


def _rejected_in_flight(observation: Observation) -> bool:
    """What is scheduled of the request begins earlier in the text than it was planned to."""
    planned = {chunk.request for step in observation.after.scheduler.in_flight for chunk in step.plan.chunks}
    return any(chunk.rejected and chunk.request in planned for chunk in _with_drafts(observation))


_event = functools.partial(Sometimes, applies_to="campaigns with drafts", applies=draws(Feature.SPECULATION))


ENTRIES = (
    _event(
        id="DRAFT-ACCEPTED",
        statement="A draft turns out to be right.",
        occurs=lambda observation: any(chunk.rejected < chunk.drafts for chunk in _with_drafts(observation)),
    ),
    _event(
        id="DRAFT-REJECTED",
        statement="A draft turns out to be wrong.",
        occurs=lambda observation: any(chunk.rejected for chunk in _with_drafts(observation)),
    ),
    _event(
        id="REJECTED-IN-FLIGHT",
        statement="A draft turns out to be wrong after the next step of its request was scheduled.",
        occurs=_rejected_in_flight,
        applies_to="campaigns with drafts and several steps in flight",
        applies=lambda setting: {Feature.SPECULATION, Feature.STEPS_IN_FLIGHT} <= setting.features,
    ),
    _event(
        id="ROWS-PADDED",
        statement="A request that waited gets rows without drafts beside its only token.",
        occurs=_padded,
    ),
    _event(
        id="STATE-COPIED-BACK",
        statement="A state that a draft's row wrote is copied back to the column that ends at its boundary.",
        occurs=_copied_back,
    ),
    _event(
        id="SCRATCH-RELOCATED",
        statement="A scratch block moves behind the columns that a chunk passes.",
        occurs=_relocated,
    ),
)
