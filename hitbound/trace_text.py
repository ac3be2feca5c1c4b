"""A violating trace, compact: what changed at each action, the picture of the admission, the violated inequality, and
where the decision is made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hitbound import step_text
from hitbound.connector_tree import tree_lines
from hitbound.judgement import Judgement
from hitbound.picture import admission_picture
from hitbound.source_lines import deciding_lines
from hitbound.wrapping import wrapped
from model.admission import Admission
from model.policy import Policy
from model.system import Observation
from properties.replay import replay

DRAWN_WIDTH = 100
"""Characters of a line of a drawn run where no terminal says how many fit."""


def trace_text(judgement: Judgement, policy: Policy, width: int) -> Iterator[str]:
    """The lines of the run that shows a violation, under `policy` or on a real engine; nothing without a trace."""
    result = judgement.result
    if result.trace is None:
        return
    replayed = judgement.replay or replay(result.trace, policy)
    yield from wrapped(step_text.configuration_line(replayed.trace.configuration), width)
    for number, observations in enumerate(step_text.by_action(replayed.observations), 1):
        yield from step_text.numbered(number, observations, width)
    telling = [observation for observation in replayed.observations if any(map(tells, observation.admissions))]
    yield from pictures(telling[-1:], policy, width)
    messages = [violation.message for violation in replayed.violations if violation.property == result.property]
    for message in messages or [result.reason]:
        yield from wrapped(f"{result.property} violated: {message}", width)
    for line in deciding_lines(policy, result.property, judgement.tree):
        yield from wrapped(f"decided by {line}", width)


def pictures(observations: Iterable[Observation], policy: Policy, width: int) -> Iterator[str]:
    """Picture and connector tree of each admission with something to see."""
    for observation in observations:
        for admission in observation.admissions:
            if tells(admission):
                yield from admission_picture(observation, admission, width)
                connector = observation.after.configuration.connector
                if connector is not None:
                    for line in tree_lines(policy, connector, admission):
                        yield from wrapped(line, width)


def tells(admission: Admission) -> bool:
    """Whether anything was cached for the request, or was loaded."""
    return admission.decision.resume > 0 or admission.decision.summary.deepest > 0
