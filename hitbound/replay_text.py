"""`hitbound replay`: a trace under each policy it speaks of, drawn step by step."""

from __future__ import annotations

import attrs

from hitbound import step_text
from hitbound.expectation import unmet
from hitbound.picture import LEGEND
from hitbound.policy_loading import load_policy
from hitbound.trace_text import pictures
from hitbound.wrapping import wrapped
from model.policies import DEFAULT_POLICY
from model.policy import Policy
from model.trace import Expectation, Trace
from properties.replay import Replay, replay


@attrs.frozen
class _Run:
    """The trace under one policy; `expected` is None where the trace says nothing about it."""

    policy: Policy
    expected: Expectation | None
    replayed: Replay

    @property
    def differences(self) -> list[str]:
        """What is not as expected. A policy of which nothing is expected must violate nothing."""
        return unmet(self.expected or Expectation(self.policy.name), self.replayed)


def replay_text(trace: Trace, policy: Policy | None, width: int) -> tuple[bool, str]:
    """Whether every expectation is met, and the drawing."""
    runs = _runs(trace, policy)
    head = [trace.title, *([f"source: {trace.source}"] if trace.source else [])]
    head += [step_text.configuration_line(trace.configuration), LEGEND]
    lines = [part for line in head for part in wrapped(line, width)]
    drawn_first: list[list[str]] = []
    for alike in _alike(runs):
        drawn = drawn_run(alike[0].replayed, alike[0].policy, width)
        same = common_prefix(drawn, drawn_first)
        lines += ["", "under " + ", ".join(run.policy.name for run in alike)]
        lines += [f" 1. to {same}. as under {runs[0].policy.name}"] if same else []
        lines += [line for lines_of_action in drawn[same:] for line in lines_of_action]
        drawn_first = drawn_first or drawn
    lines.append("")
    for run in runs:
        lines += [part for line in _outcome(run) for part in wrapped(line, width)]
    return not any(run.differences for run in runs), "\n".join(lines)


def _runs(trace: Trace, policy: Policy | None) -> list[_Run]:
    stated = {expected.policy: expected for expected in trace.expectations}
    policies = [policy] if policy else [load_policy(name) for name in stated or (DEFAULT_POLICY,)]
    return [_Run(chosen, stated.get(chosen.name), replay(trace, chosen)) for chosen in policies]


def _alike(runs: list[_Run]) -> list[list[_Run]]:
    """Runs with the same observations are drawn once."""
    groups: list[list[_Run]] = []
    for run in runs:
        for group in groups:
            if group[0].replayed.observations == run.replayed.observations:
                group.append(run)
                break
        else:
            groups.append([run])
    return groups


def common_prefix(drawn: list[list[str]], first: list[list[str]]) -> int:
    """How many actions at the beginning did the same as in the first drawing."""
    same = 0
    while same < min(len(drawn), len(first)) and drawn[same] == first[same]:
        same += 1
    return same


def drawn_run(replayed: Replay, policy: Policy, width: int) -> list[list[str]]:
    """The lines of each action."""
    drawn = []
    for number, observations in enumerate(step_text.by_action(replayed.observations), 1):
        lines = step_text.numbered(number, observations, width)
        drawn.append(lines + [f"      {line}" for line in pictures(observations, policy, width - 6)])
    return drawn


def _outcome(run: _Run) -> list[str]:
    """Whether the run is as expected, and the first violation of each property."""
    first: dict[str, str] = {}
    for violation in run.replayed.violations:
        first.setdefault(violation.property, violation.message)
    if run.expected is None:
        verdict = "nothing was expected"
    else:
        verdict = "not as expected" if run.differences else "as expected"
    lines = [f"{run.policy.name}: {verdict}"]
    lines += [f"  {difference}" for difference in run.differences if run.expected]
    lines += [f"  {property} violated: {message}" for property, message in first.items()] or ["  violates nothing"]
    return lines
