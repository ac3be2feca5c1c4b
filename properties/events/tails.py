"""Events about partial tails, where the hash unit lies below the Mamba block."""

from __future__ import annotations

import functools

from model.partial_tails import prompt_tail
from model.system import Observation
from properties.features import Feature
from properties.invariant import Sometimes, draws


def _hit(observation: Observation) -> bool:
    groups = observation.after.configuration.groups
    return any(
        decision.external == 0 and any(decision.local % group.block for group in groups)
        for decision in observation.decisions
    )


def _kept(observation: Observation) -> bool:
    return any(
        decision.answer.tokens > 0 and decision.external == 0 and 0 < decision.asked < decision.local
        for decision in observation.decisions
    )


def _alias(observation: Observation) -> bool:
    before, after = observation.before.scheduler.pool.aliases, observation.after.scheduler.pool.aliases
    return any(len(after[block]) > len(before.get(block, ())) for block in after)


def _promoted(observation: Observation) -> bool:
    """A block that was cached for a tail is cached for a longer prefix, without having changed hands."""
    before, after = observation.before.scheduler.pool.labels, observation.after.scheduler.pool.labels
    taken = observation.planned.taken if observation.planned is not None else ()
    return any(
        old is not None and new is not None and len(old.prefix) < len(new.prefix) and block not in taken
        for block, (old, new) in enumerate(zip(before, after, strict=True))
    )


def _copied(observation: Observation, *, replaces: bool) -> bool:
    plan = observation.plan
    return plan is not None and any(copy.replaces is replaces for copy in plan.copies)


def _ends_inside_a_block(observation: Observation) -> bool:
    configuration = observation.after.configuration
    block = configuration.mamba_block
    if observation.planned is None or block is None or block <= configuration.budget:
        return False
    requests = {**observation.before.scheduler.requests, **observation.after.scheduler.requests}
    return any(
        chunk.end % block
        and chunk.end < requests[chunk.request].prompt_length
        and chunk.end != prompt_tail(configuration, requests[chunk.request])
        for chunk in observation.planned.chunks
    )


def _sharded(observation: Observation) -> bool:
    configuration = observation.after.configuration
    sharded = configuration.context_ranks > 1 and configuration.mamba_block is not None
    return sharded and any(decision.local and not decision.external for decision in observation.decisions)


_event = functools.partial(
    Sometimes, applies_to="campaigns that draw a hash unit below the Mamba block", applies=draws(Feature.PARTIAL_TAILS)
)


ENTRIES = (
    _event(
        id="TAIL-HIT",
        statement="A request is admitted with E = 0 at an L inside a block.",
        occurs=_hit,
    ),
    _event(
        id="TAIL-DROPPED",
        statement="A local hit loses its partial tail to an E that is longer.",
        occurs=lambda observation: any(decision.tail_dropped for decision in observation.decisions),
    ),
    _event(
        id="TAIL-KEPT",
        statement="A connector offers no more than the partial tail, so the tail stays and E is 0.",
        occurs=_kept,
    ),
    _event(
        id="TAIL-ALIAS",
        statement="A block that is cached for a longer prefix is cached for a partial tail as well.",
        occurs=_alias,
    ),
    _event(
        id="TAIL-PROMOTED",
        statement="A block that was cached for a partial tail fills up and is cached as a whole.",
        occurs=_promoted,
    ),
    _event(
        id="TAIL-COPIED",
        statement="A request that hits a partial tail goes on in a copy of the block.",
        occurs=lambda observation: _copied(observation, replaces=True),
    ),
    _event(
        id="TAIL-MOVED",
        statement="A running request writes on in the block of its own partial tail, which is found in a copy then.",
        occurs=lambda observation: _copied(observation, replaces=False),
    ),
    _event(
        id="CHUNK-INSIDE-BLOCK",
        statement="A Mamba block is wider than a step, and a chunk of the prompt ends inside it.",
        occurs=_ends_inside_a_block,
    ),
    Sometimes(
        id="SHARDED-HIT",
        statement="A request is admitted at L > 0 with E = 0 where attention, not state, is sharded.",
        occurs=_sharded,
        applies_to="campaigns with context parallelism",
        applies=draws(Feature.CONTEXT_PARALLEL),
    ),
)
