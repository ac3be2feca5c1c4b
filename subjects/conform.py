"""The engine `conform`: a real scheduler under the same checks as the model.

Generated traces run on the subject, whose plans the shadow worker executes and the properties judge. Where the
scheduler of the release is modelled, the model runs the same trace beside it and every decision is compared; as long as
nothing differs, one judgement is about both (see `subjects/differential.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import attrs

from model.actions import Action, Drain
from model.configuration import ConfigurationClass
from model.errors import HitboundError
from model.policy import Policy
from model.system import Observation
from model.trace import Trace
from properties.invariant import Violation
from properties.judge import events, violations
from properties.machine import has_gone_wrong
from properties.replay import Replay, first_admissions
from properties.verdict import Case
from properties.wording import without_numbers
from subjects.courses import Course, Profile, courses_on, events_of, is_compared, run_of
from subjects.differential import Comparison, Difference, Ending, compared, start
from subjects.engine import SubjectEngine
from subjects.model_run import ModelRun
from subjects.possible import possible
from subjects.process import Failure, SubjectProcess

NO_ENGINE_ERROR = "NO-ENGINE-ERROR"
"""Property of a run: the scheduler raises nothing, and answers."""

JUDGED = (
    "HIT-RESUME",
    "HIT-COVER",
    "HIT-LAST",
    "CAP-MEET",
    "STATE-LABEL",
    "STATE-VISIBLE",
    "OWN-EXCLUSIVE",
    "OWN-LEAK",
    "LOAD-EXACT",
    "LOAD-ORDER",
)
"""Invariants that a subject is judged by: those that its plan, its tables and the shadow memory decide. What happens
inside one lookup is not seen; where it goes wrong, what is read goes wrong."""

JUDGED_WITH_TAILS = tuple(name for name in JUDGED if name != "OWN-LEAK")
"""Which blocks it holds for a copy of a partial tail a subject does not show."""

EXAMPLES = 2
"""Traces of one finding that are kept; the one that is smallest once minimised is reported."""


@attrs.frozen
class Signature:
    """What makes two violations the same finding. `raised` is what the scheduler raised, without its numbers."""

    property: str
    case: Case | None
    raised: str
    configuration_class: ConfigurationClass


@attrs.define
class Outcome:
    """What a campaign on one subject met and found: traces by course, the events of each trace, up to where it went
    wrong, and the differences."""

    release: str
    policy: Policy
    traces: Counter[Course] = attrs.Factory(Counter)
    steps: int = 0
    endings: Counter[Ending] = attrs.Factory(Counter)
    happened: list[frozenset[str]] = attrs.Factory(list)
    found: dict[Signature, list[Trace]] = attrs.Factory(dict)
    differences: list[tuple[Course, Trace, Difference]] = attrs.Factory(list)


def conform(
    process: SubjectProcess,
    policy: Policy,
    profile: Profile,
    seed: int,
    *,
    compare: bool,
    progress: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Run the profile's traces on the subject. With `compare` the model of the release runs beside it."""
    outcome = Outcome(process.release, policy)
    traces = _traces(process.release, policy, profile, seed)
    upcoming = next(traces, None)
    while upcoming is not None:
        course, run = upcoming
        if not outcome.traces.total() % 200:
            progress(f"conform vLLM {process.release}: {outcome.traces.total()} traces, {len(outcome.found)} findings")
        outcome.traces[course] += 1
        if compare and is_compared(process.release, course):
            replies = start(run, process)
            # The next trace is drawn while the subject runs this one.
            upcoming = next(traces, None)
            _judge_both(course, run, compared(run, replies), outcome, process)
        else:
            upcoming = next(traces, None)
            _judge_alone(course, run.trace, outcome, process)
    return outcome


def _traces(release: str, policy: Policy, profile: Profile, seed: int) -> Iterator[tuple[Course, ModelRun]]:
    courses = courses_on(release)
    rounds = -(-profile.traces // sum(course.traces for course in courses))
    for number in range(seed * rounds, (seed + 1) * rounds):
        for course in courses:
            first = number * course.traces
            for each in range(first, first + course.traces):
                yield course, run_of(course, each, policy, release, profile.actions)


def _judge_both(
    course: Course, run: ModelRun, comparison: Comparison, outcome: Outcome, process: SubjectProcess
) -> None:
    """Beyond a difference the subject has to be looked at alone."""
    outcome.endings[comparison.ending] += 1
    difference = comparison.difference
    if comparison.ending is Ending.REFUSED:
        return
    if comparison.ending is Ending.EQUAL:
        seen: list[tuple[int, Observation | Failure]] = [*run.numbered]
        if comparison.failure is not None:
            seen[-1] = (len(run.observed) - 1, comparison.failure)
        _judge(course, run.trace, seen, outcome)
        return
    if difference is not None:
        outcome.differences.append((course, run.up_to(difference.action), difference))
    _judge_alone(course, run.trace, outcome, process)


def _judge_alone(course: Course, trace: Trace, outcome: Outcome, process: SubjectProcess) -> None:
    engine = SubjectEngine(trace.configuration, outcome.policy, process)
    if engine.build() is None:
        _judge(course, trace, _alone(engine, trace.actions), outcome)


def _judge(course: Course, trace: Trace, seen: Iterable[tuple[int, Observation | Failure]], outcome: Outcome) -> None:
    """Note what the observations show, each with the index of its action, until something has gone wrong."""
    awaited, happened = events_of(course, outcome.policy), frozenset[str]()
    for index, observation in seen:
        so_far = attrs.evolve(trace, actions=trace.actions[: index + 1])
        if isinstance(observation, Failure):
            _note(_error(observation, index), so_far, outcome)
            break
        outcome.steps += observation.planned is not None
        happened |= events(observation, awaited - happened)
        found = judged(observation)
        for violation in found:
            _note(violation, so_far, outcome)
        if found and has_gone_wrong(observation):
            break
    outcome.happened.append(happened)


def judged(observation: Observation) -> tuple[Violation, ...]:
    """The violations that count on a subject."""
    return violations(observation, JUDGED_WITH_TAILS if observation.after.configuration.fine_grained else JUDGED)


def run_on(trace: Trace, policy: Policy, process: SubjectProcess, *, whole: bool = False) -> Replay:
    """Run a trace on the subject alone, until something has gone wrong unless the `whole` is asked for.

    Actions that are not possible there are left out. A configuration that the subject refuses is a violation without an
    action.
    """
    engine = SubjectEngine(trace.configuration, policy, process)
    observations: list[Observation] = []
    found: list[Violation] = []
    refused = engine.build()
    if refused is not None:
        return Replay(policy.name, trace, (), (_error(refused, None),), ())
    for index, seen in _alone(engine, trace.actions):
        if isinstance(seen, Failure):
            found.append(_error(seen, index))
            break
        observations.append(seen)
        found += (attrs.evolve(violation, action=index) for violation in judged(seen))
        if has_gone_wrong(seen) and not whole:
            break
    return Replay(policy.name, trace, tuple(observations), tuple(found), first_admissions(observations))


def raised_in(violation: Violation) -> str:
    """What the scheduler raised, without its numbers; empty where it raised nothing."""
    return without_numbers(violation.message) if violation.property == NO_ENGINE_ERROR else ""


def signature_of(violation: Violation, trace: Trace) -> Signature:
    """Which finding the violation is."""
    return Signature(violation.property, violation.case, raised_in(violation), trace.configuration.configuration_class)


def _note(violation: Violation, trace: Trace, outcome: Outcome) -> None:
    examples = outcome.found.setdefault(signature_of(violation, trace), [])
    if len(examples) < EXAMPLES:
        examples.append(trace)


def _alone(engine: SubjectEngine, actions: tuple[Action, ...]) -> Iterator[tuple[int, Observation | Failure]]:
    """Let the possible ones of `actions` happen on the subject alone: a drain as so many steps as it takes."""
    for index, action in enumerate(actions):
        if not possible(engine.system, action):
            continue
        try:
            while True:
                seen = engine.act(action)
                yield index, seen
                if isinstance(seen, Failure):
                    return
                if not _is_busy_drain(seen):
                    break
        except HitboundError:
            continue


def _is_busy_drain(observation: Observation) -> bool:
    """Whether a drain goes on: it executed what was in flight, or its last step ran, admitted or preempted any."""
    if not isinstance(observation.action, Drain):
        return False
    planned = observation.planned
    return planned is None or bool(planned.chunks or observation.admissions or observation.preempted)


def _error(failure: Failure, action: int | None) -> Violation:
    return Violation(NO_ENGINE_ERROR, None, f"{failure.kind}: {failure.message}", action)
