"""Events of what changes L or E after a connector has answered."""

from __future__ import annotations

from model.system import Observation
from properties.features import Feature
from properties.invariant import Sometimes, draws


def _reading_skipped(observation: Observation) -> bool:
    requests = observation.before.scheduler.requests
    return any(
        requests[decision.request].skip_reading and decision.answer.tokens > 0 for decision in observation.decisions
    )


def _load_given_up(observation: Observation) -> bool:
    return any(decision.given_up for decision in observation.decisions)


def _rerun(observation: Observation) -> bool:
    return observation.plan is not None and any(chunk.rerun for chunk in observation.plan.chunks)


def _short_hit(observation: Observation) -> bool:
    window = observation.after.configuration.replay_window
    return any(
        0 < max(decision.first_local, decision.answer.tokens) <= window and not decision.resume
        for decision in observation.decisions
    )


ENTRIES = (
    Sometimes(
        id="READING-SKIPPED",
        statement="A connector answers E > 0 about a request that is not to read the prefix cache.",
        occurs=_reading_skipped,
        applies_to="campaigns with skipped reading",
        applies=draws(Feature.SKIPPED_READING),
    ),
    Sometimes(
        id="OUTPUTS-MISSING",
        statement="A load is given up because auxiliary outputs are not kept as far.",
        occurs=_load_given_up,
        applies_to="campaigns with auxiliary outputs",
        applies=draws(Feature.AUXILIARY_OUTPUTS),
    ),
    Sometimes(
        id="HIT-RERUN",
        statement="The end of a hit is run again.",
        occurs=_rerun,
        applies_to="campaigns with prefix replay",
        applies=draws(Feature.PREFIX_REPLAY),
    ),
    Sometimes(
        id="SHORT-HIT",
        statement="A hit that is no longer than the replayed window is given up.",
        occurs=_short_hit,
        applies_to="campaigns with prefix replay",
        applies=draws(Feature.PREFIX_REPLAY),
    ),
)
