"""Events of the block pool and the queues: evictions, preemptions, blocks that are shared or copied."""

from __future__ import annotations

from model.actions import Evict, Preempt, Reset
from model.configuration import Eviction
from model.pool import Label
from model.system import Observation
from properties.features import Feature
from properties.invariant import Sometimes, draws


def evicted(observation: Observation) -> set[Label]:
    """Labels that are not cached any more, other than by a reset."""
    if isinstance(observation.action, Reset):
        return set()
    return observation.before.scheduler.pool.cached.keys() - observation.after.scheduler.pool.cached.keys()


def _evicted_by_reuse(observation: Observation) -> bool:
    return observation.planned is not None and not observation.rolled_back and bool(evicted(observation))


def _preemption(observation: Observation) -> bool:
    return bool(observation.preempted) or isinstance(observation.action, Preempt)


def _resumption(observation: Observation) -> bool:
    requests = observation.before.scheduler.requests
    return any(len(decision.prefix) > requests[decision.request].prompt_length for decision in observation.decisions)


def _same_step_attention(observation: Observation) -> bool:
    """A request starts on an attention block that another one writes in the same step."""
    if observation.plan is None:
        return False
    mirrors = observation.after.worker.mirrors
    written = {
        (mirrors[chunk.request].block(index, column), chunk.request)
        for chunk in observation.plan.chunks
        for index, group in enumerate(observation.after.configuration.groups)
        if not group.recurrent
        for column in range(chunk.computed // group.block, -(-chunk.end // group.block))
    }
    return any(
        block in chunk.new_blocks[index][: chunk.computed // group.block]
        for chunk in observation.plan.chunks
        if chunk.starts
        for index, group in enumerate(observation.after.configuration.groups)
        if not group.recurrent
        for block, writer in written
        if writer != chunk.request
    )


def _state_copied(observation: Observation) -> bool:
    return observation.execution is not None and any(chunk.copied for chunk in observation.execution.chunks)


ENTRIES = (
    Sometimes(
        id="EVICTED-BY-REUSE",
        statement="A cached block is taken for something else.",
        occurs=_evicted_by_reuse,
    ),
    Sometimes(
        id="EVICTED-AT-WILL",
        statement="An unreferenced cached block loses its hash for no reason.",
        occurs=lambda observation: isinstance(observation.action, Evict),
        applies_to="adversarial eviction",
        applies=lambda setting: setting.eviction is Eviction.ADVERSARIAL,
    ),
    Sometimes(
        id="RESET",
        statement="The prefix cache is reset.",
        occurs=lambda observation: isinstance(observation.action, Reset),
    ),
    Sometimes(id="PREEMPTED", statement="A running request is preempted.", occurs=_preemption),
    Sometimes(
        id="TAKEN-OUT",
        statement="A request is preempted in the step that its chunk is in already, and the chunk is taken out.",
        occurs=lambda observation: bool(observation.taken_out),
        applies_to="campaigns with priorities",
        applies=draws(Feature.PRIORITIES),
    ),
    Sometimes(
        id="RESUMED",
        statement="A request is admitted again after it has put out tokens, which are part of its prefix now.",
        occurs=_resumption,
    ),
    Sometimes(
        id="PUT-OFF",
        statement="A request hits a recurrent state that is written in the same step, and is put off.",
        occurs=lambda observation: bool(observation.put_off),
    ),
    Sometimes(
        id="SAME-STEP-ATTENTION",
        statement="A request starts on an attention block that another one writes in the same step.",
        occurs=_same_step_attention,
    ),
    Sometimes(
        id="STATE-COPIED",
        statement="A recurrent state is copied to the column in which the chunk ends.",
        occurs=_state_copied,
    ),
)
