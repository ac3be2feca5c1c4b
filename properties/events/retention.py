"""Events of what is cached at all: dropped for a draft model, not kept, or kept inside a chunk."""

from __future__ import annotations

from model.configuration import StateMode
from model.pool import Label
from model.system import Observation
from properties.features import Feature
from properties.invariant import Sometimes, draws


def _dropped(observation: Observation) -> bool:
    return any(
        view.dropping and decision.local and view.plain.find(view.cap) > view.hit
        for decision in observation.decisions
        for view in decision.lookup.views
    )


def _state_not_kept(observation: Observation) -> bool:
    """A chunk ends on the Mamba grid and its state is not cached."""
    configuration, pool = observation.after.configuration, observation.after.scheduler.pool
    block = configuration.mamba_block
    if observation.plan is None or block is None or configuration.retention is None:
        return False
    return any(
        chunk.end % block == 0 and group.recurrent and Label(index, chunk.prefix[: chunk.end]) not in pool.cached
        for chunk in observation.plan.chunks
        for index, group in enumerate(configuration.groups)
    )


def _sparse_hit(observation: Observation) -> bool:
    sparse = observation.after.configuration.retention is not None
    return sparse and any(decision.local and not decision.external for decision in observation.decisions)


def _checkpoint_stored(observation: Observation) -> bool:
    requests, pool = observation.after.scheduler.requests.values(), observation.after.scheduler.pool
    checkpoints = [(request.tokens, request.checkpoint) for request in requests if request.checkpoint is not None]
    return any(
        group.recurrent and Label(index, tokens[: checkpoint.boundary]) in pool.cached
        for tokens, checkpoint in checkpoints
        for index, group in enumerate(observation.after.configuration.groups)
    )


def _every_state_hit(observation: Observation) -> bool:
    configuration = observation.after.configuration
    every = configuration.state_mode is StateMode.ALL and configuration.mamba_block is not None
    return every and any(decision.local and not decision.external for decision in observation.decisions)


ENTRIES = (
    Sometimes(
        id="DRAFT-DROP",
        statement="A draft group's hit drops a block, and what is left of it is hit.",
        occurs=_dropped,
        applies_to="runs with draft models",
        applies=draws(Feature.DRAFT_MODEL),
    ),
    Sometimes(
        id="STATE-NOT-KEPT",
        statement="A state is written at a boundary, and retention does not let it be cached.",
        occurs=_state_not_kept,
        applies_to="runs with sparse retention",
        applies=draws(Feature.SPARSE_RETENTION),
    ),
    Sometimes(
        id="SPARSE-HIT",
        statement="A request is admitted at a boundary R > 0 that sparse retention kept, with E = 0.",
        occurs=_sparse_hit,
        applies_to="runs with sparse retention",
        applies=draws(Feature.SPARSE_RETENTION),
    ),
    Sometimes(
        id="CHECKPOINT-STORED",
        statement="A chunk of a prefill stores a second state, which is cached for its boundary.",
        occurs=_checkpoint_stored,
        applies_to="runs with internal checkpoints",
        applies=draws(Feature.INTERNAL_CHECKPOINT),
    ),
    Sometimes(
        id="EVERY-STATE-HIT",
        statement="A request is admitted at a boundary R > 0 where a state is written in every block, with E = 0.",
        occurs=_every_state_hit,
        applies_to="runs with a state in every block",
        applies=draws(Feature.EVERY_STATE),
    ),
)
