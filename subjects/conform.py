"""The engine `conform`: a real scheduler under the same checks as the model.

Generated traces run on the subject, whose plans the shadow worker executes and the properties judge. Where the
scheduler of the release is modelled, the model runs the same trace beside it and every decision is compared. What is
found is made smaller on the subject itself, and replayed there once more before it counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

import attrs

from model.actions import Action, Drain
from model.configuration import ConfigurationClass, Eviction, GroupKind
from model.errors import HitboundError
from model.policies import POLICIES
from model.policy import Policy
from model.release import Release, Reservation, WaitingOrder, rules_of
from model.system import Observation
from model.trace import Trace
from properties.features import Feature
from properties.invariant import Violation
from properties.judge import events, violations
from properties.machine import has_gone_wrong
from properties.minimise import minimise, size
from properties.replay import Replay, first_admissions
from properties.requirements import is_required
from properties.verdict import REQUIRED_CELL, Case, Result, Verdict
from subjects.differential import Difference, Ending, Run
from subjects.engine import SubjectEngine
from subjects.generation import random_trace
from subjects.possible import possible
from subjects.process import Failure, SubjectProcess

ENGINE = "conform"

SAME_DECISIONS = "SAME-DECISIONS"
"""Property of a run: the model of the release decides as the real scheduler does."""

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

EXAMPLES = 2
"""Traces of one finding that are kept; the one that is smallest once minimised is reported."""


@attrs.frozen
class Signature:
    """What makes two violations the same finding. `raised` is what the scheduler raised, without its numbers."""

    property: str
    case: Case | None
    raised: str
    configuration_class: ConfigurationClass


@attrs.frozen
class Profile:
    """How many traces of at most `actions` actions run in each course; a profile without a seed draws one."""

    name: str
    traces: int
    actions: int
    seed: int | None


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("quick", traces=20, actions=25, seed=0),
        Profile("ci", traces=120, actions=25, seed=0),
        Profile("nightly", traces=4000, actions=30, seed=None),
    )
}

PLAIN: frozenset[Feature] = frozenset()
TAILS = frozenset({Feature.PARTIAL_TAILS})
DRAFTS = frozenset({Feature.DRAFT_MODEL, Feature.SPECULATION, Feature.SPARSE_RETENTION, Feature.CHUNKED_LOCAL})


@attrs.frozen
class Course:
    """What the traces of one kind draw: a second attention spec, how blocks are evicted, and features."""

    second_attention: GroupKind | None
    eviction: Eviction
    features: frozenset[Feature]


def courses_on(release: str) -> tuple[Course, ...]:
    """What runs on a release: partial tails and what came with them are modelled as 0.28 and later have them."""
    drawn = (PLAIN, TAILS, DRAFTS) if _number(release) >= (0, 28) else (PLAIN,)
    return tuple(
        Course(second, eviction, features)
        for features in drawn
        for eviction in (Eviction.ADVERSARIAL, Eviction.LRU)
        for second in (None, GroupKind.SLIDING_WINDOW, GroupKind.FULL_ATTENTION)
        if features is PLAIN or second is not GroupKind.FULL_ATTENTION
    )


def is_compared(release: str, course: Course) -> bool:
    """Whether the model is compared. Up to 0.28, two full-attention specs with different blocks are not: there the
    second hit list is not trimmed to the common hit."""
    untrimmed = course.second_attention is GroupKind.FULL_ATTENTION and _number(release) < (0, 29)
    return _number(release) >= (0, 27) and not untrimmed


def rules_on_a_subject(release: str) -> Release:
    """The rules of a release with its own estimate of blocks and its own queues, so that no trace ends for want of
    blocks that the model would have taken."""
    from_031 = _number(release) >= (0, 31)
    return attrs.evolve(
        rules_of(release),
        reservation=Reservation.ESTIMATED if from_031 else Reservation.ESTIMATED_WITH_STATE,
        waiting_order=WaitingOrder.HOLDERS_FIRST if from_031 else WaitingOrder.SKIPPED_FIRST,
    )


def policy_of(release: str) -> Policy:
    """The newest shipped policy that is not newer than the release ("0.33.0" or "0.33.0+local")."""
    number = _number(release)
    eras = {
        _number(name.removeprefix("vllm-")): policy for name, policy in POLICIES.items() if name.startswith("vllm-")
    }
    known = [era for era in eras if era <= number]
    return eras[max(known)] if known else eras[max(eras)]


def _number(release: str) -> tuple[int, ...]:
    parts = release.split("+")[0].split(".")[:2]
    return tuple(int(part) if part.isdecimal() else 0 for part in parts)


@attrs.define
class Outcome:
    """What a campaign on one subject met and found."""

    release: str
    policy: Policy
    traces: int = 0
    steps: int = 0
    endings: Counter[Ending] = attrs.Factory(Counter)
    met: Counter[str] = attrs.Factory(Counter)
    found: dict[Signature, list[Trace]] = attrs.Factory(dict)
    differences: list[tuple[Trace, Difference]] = attrs.Factory(list)


@attrs.frozen
class Finding:
    """A violation on the subject: the smallest trace, and what happened in it."""

    signature: Signature
    replay: Replay

    @property
    def message(self) -> str:
        trace = self.replay.trace
        return next(found.message for found in self.replay.violations if _signature(found, trace) == self.signature)


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
    for index, action in enumerate(trace.actions):
        over = False
        for seen in _act(engine, action):
            if isinstance(seen, Failure):
                found.append(_error(seen, index))
                over = True
                break
            observations.append(seen)
            found += (attrs.evolve(violation, action=index) for violation in judged(seen))
            over = over or (has_gone_wrong(seen) and not whole)
        if over:
            break
    return Replay(policy.name, trace, tuple(observations), tuple(found), first_admissions(observations))


def judged(observation: Observation) -> tuple[Violation, ...]:
    """The violations that count on a subject. Which blocks it holds for a copy of a partial tail it does not show, so
    with these OWN-LEAK does not count."""
    unseen = {"OWN-LEAK"} if observation.after.configuration.fine_grained else set()
    return tuple(
        found for found in violations(observation) if found.property in JUDGED and found.property not in unseen
    )


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
    for number in range(profile.traces):
        if number % 20 == 0:
            progress(f"conform vLLM {process.release}: {outcome.traces} traces, {len(outcome.found)} findings")
        for course in courses_on(process.release):
            trace = random_trace(
                seed * profile.traces + number,
                policy,
                second_attention=course.second_attention,
                eviction=course.eviction,
                features=course.features,
                release=rules_on_a_subject(process.release),
                actions=profile.actions,
            )
            _follow(trace, outcome, process, compare=compare and is_compared(process.release, course))
    return outcome


def findings(outcome: Outcome, process: SubjectProcess) -> Iterator[Finding]:
    """Each finding with its smallest trace, which violates the same again on a fresh scheduler."""

    for signature, examples in outcome.found.items():

        def again(candidate: Trace, signature: Signature = signature) -> Replay | None:
            replayed = run_on(candidate, outcome.policy, process)
            found = {_signature(violation, candidate) for violation in replayed.violations}
            return replayed if signature in found else None

        smallest = min((minimise(example, lambda trace: again(trace) is not None) for example in examples), key=size)
        replayed = again(smallest)
        if replayed is not None:
            yield Finding(signature, replayed)


def violated(finding: Finding, outcome: Outcome, scope: str) -> Result:
    """A finding as a result; its trace violates the property on the subject.

    As for a policy, what a second attention spec does is not required; that the scheduler raises nothing always is.
    """
    signature = finding.signature
    required_class = signature.configuration_class is REQUIRED_CELL.configuration_class
    return attrs.evolve(
        _base(scope),
        property=signature.property,
        case=signature.case,
        required=signature.property == NO_ENGINE_ERROR or (required_class and is_required(signature.property)),
        verdict=Verdict.VIOLATED,
        reason=finding.message,
        trace=attrs.evolve(finding.replay.trace, title=finding.message, source=f"vLLM {outcome.release}"),
    )


def held(outcome: Outcome, found: tuple[Finding, ...], scope: str, *, compared: bool) -> Iterator[Result]:
    """A result per property that held or whose violation did not occur again, and one for the comparison."""
    confirmed = {finding.signature for finding in found}
    lost = {signature.property for signature in outcome.found if signature not in confirmed}
    for name in sorted(lost):
        yield attrs.evolve(
            _base(scope), property=name, verdict=Verdict.UNKNOWN, reason="seen once, and not again when it was replayed"
        )
    bad = lost | {signature.property for signature in confirmed}
    for name in (*JUDGED, NO_ENGINE_ERROR):
        if name not in bad:
            yield attrs.evolve(_base(scope), property=name, required=is_required(name))
    if compared:
        yield _agreement(_base(scope), outcome)


def _base(scope: str) -> Result:
    return Result(property="", engine=ENGINE, verdict=Verdict.HOLDS_WITHIN, required=True, scope=scope)


def _agreement(base: Result, outcome: Outcome) -> Result:
    detail = {ending.value: count for ending, count in sorted(outcome.endings.items(), key=lambda item: item[0].value)}
    result = attrs.evolve(base, property=SAME_DECISIONS, detail=detail)
    if not outcome.differences:
        return result
    trace, difference = min(outcome.differences, key=lambda pair: size(pair[0]))
    reason = f"{len(outcome.differences)} traces differ from the model; the smallest, {trace.title}: {difference}"
    return attrs.evolve(result, verdict=Verdict.UNKNOWN, reason=reason)


def _follow(trace: Trace, outcome: Outcome, process: SubjectProcess, *, compare: bool) -> None:
    """Run one trace until it ends or something is found; beyond a difference the subject goes on alone."""
    outcome.traces += 1
    run = Run(trace.configuration, outcome.policy, process)
    comparing = compare
    refused = run.engine.build()
    if refused is not None:
        outcome.endings[Ending.REFUSED] += 1
        return
    done: list[Action] = []
    ending = Ending.EQUAL
    for number, action in enumerate(trace.actions, 1):
        done.append(action)
        if comparing:
            seen, stopped = run.compared(number, action)
            if stopped is not None:
                comparing, ending = False, stopped.ending
                if stopped.difference is not None:
                    outcome.differences.append((attrs.evolve(trace, actions=tuple(done)), stopped.difference))
        else:
            seen = tuple(_act(run.engine, action))
        if _judge(seen, trace, done, outcome):
            break
    outcome.endings[ending] += compare


def _judge(seen: tuple[Observation | Failure, ...], trace: Trace, done: list[Action], outcome: Outcome) -> bool:
    """Note what the observations show; whether the run is over."""
    for observation in seen:
        if isinstance(observation, Failure):
            _note(_error(observation, None), trace, done, outcome)
            return True
        outcome.steps += observation.plan is not None
        outcome.met.update(events(observation))
        found = judged(observation)
        for violation in found:
            _note(violation, trace, done, outcome)
        if found and has_gone_wrong(observation):
            return True
    return False


def _note(violation: Violation, trace: Trace, done: list[Action], outcome: Outcome) -> None:
    examples = outcome.found.setdefault(_signature(violation, trace), [])
    if len(examples) < EXAMPLES:
        examples.append(attrs.evolve(trace, actions=tuple(done)))


def _signature(violation: Violation, trace: Trace) -> Signature:
    raised = re.sub(r"\d+", "n", violation.message) if violation.property == NO_ENGINE_ERROR else ""
    return Signature(violation.property, violation.case, raised, trace.configuration.configuration_class)


def _act(engine: SubjectEngine, action: Action) -> Iterator[Observation | Failure]:
    """Let an action happen on the subject alone: a drain as so many steps as it takes."""
    if not possible(engine.system, action):
        return
    try:
        while True:
            seen = engine.act(action)
            yield seen
            if isinstance(seen, Failure) or not _is_busy_drain(seen):
                return
    except HitboundError:
        return


def _is_busy_drain(observation: Observation) -> bool:
    """Whether a drain goes on: its last step ran or admitted something."""
    plan = observation.plan
    return isinstance(observation.action, Drain) and plan is not None and bool(plan.chunks or observation.admissions)


def _error(failure: Failure, action: int | None) -> Violation:
    return Violation(NO_ENGINE_ERROR, None, f"{failure.kind}: {failure.message}", action)
