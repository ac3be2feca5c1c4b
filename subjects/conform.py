"""The engine `conform`: a real scheduler under the same checks as the model.

Generated traces run on the subject, whose plans the shadow worker executes and the properties judge. Where the release's
scheduler is modelled, the model runs the same trace beside it and every decision is compared. What is found is made
smaller on the subject itself, and replayed there once more before it counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import attrs

from model.actions import Action, Drain
from model.configuration import Eviction, GroupKind
from model.errors import HitboundError
from model.policies import POLICIES
from model.policy import Policy
from model.system import Observation
from model.trace import ExpectedAdmission, Trace
from properties.invariant import Violation
from properties.judge import events, violations
from properties.minimise import minimise, size
from properties.replay import Replay
from properties.requirements import is_required
from properties.verdict import Case, Result, Verdict
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

EXAMPLES = 4
"""Traces of one finding that are kept; the one that is smallest once minimised is reported."""

Signature = tuple[str, Case | None]


@attrs.frozen
class Profile:
    """How many traces of at most `actions` actions run in each of the classes; a profile without a seed draws one."""

    name: str
    traces: int
    actions: int
    seed: int | None


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("quick", traces=60, actions=25, seed=0),
        Profile("ci", traces=300, actions=25, seed=0),
        Profile("nightly", traces=4000, actions=30, seed=None),
    )
}

CLASSES = tuple(
    (second, eviction)
    for eviction in (Eviction.ADVERSARIAL, Eviction.LRU)
    for second in (None, GroupKind.SLIDING_WINDOW, GroupKind.FULL_ATTENTION)
)
"""Kinds of a second attention spec, and how blocks are evicted."""


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
        return next(found.message for found in self.replay.violations if (found.property, found.case) == self.signature)


def run_on(trace: Trace, policy: Policy, process: SubjectProcess) -> Replay:
    """Run a trace on the subject alone, up to its first violation; actions that are not possible there are left out."""
    engine = SubjectEngine(trace.configuration, policy, process)
    observations: list[Observation] = []
    found: list[Violation] = []
    refused = engine.build()
    if refused is not None:
        return Replay(policy.name, trace, (), (_error(refused, None),), ())
    for index, action in enumerate(trace.actions):
        for seen in _act(engine, action):
            if isinstance(seen, Failure):
                found.append(_error(seen, index))
                break
            observations.append(seen)
            found += (attrs.evolve(violation, action=index) for violation in judged(seen))
        if found:
            break
    return Replay(policy.name, trace, tuple(observations), tuple(found), _first_admissions(observations))


def judged(observation: Observation) -> tuple[Violation, ...]:
    """The violations that count on a subject."""
    return tuple(violation for violation in violations(observation) if violation.property in JUDGED)


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
        for second, eviction in CLASSES:
            trace = random_trace(
                seed * profile.traces + number,
                policy,
                second_attention=second,
                eviction=eviction,
                actions=profile.actions,
            )
            _follow(trace, outcome, process, compare=compare)
    return outcome


def findings(outcome: Outcome, process: SubjectProcess) -> Iterator[Finding]:
    """Each finding with its smallest trace, which violates the same again on a fresh scheduler."""

    for signature, examples in outcome.found.items():

        def still(candidate: Trace, signature: Signature = signature) -> bool:
            again = run_on(candidate, outcome.policy, process).violations
            return signature in {(violation.property, violation.case) for violation in again}

        smallest = min((minimise(example, still) for example in examples), key=size)
        replayed = run_on(smallest, outcome.policy, process)
        if signature in {(violation.property, violation.case) for violation in replayed.violations}:
            yield Finding(signature, replayed)


def results(outcome: Outcome, found: tuple[Finding, ...], scope: str, *, compared: bool) -> tuple[Result, ...]:
    """A result per finding, per property that held, and one for the comparison."""
    base = Result(property="", engine=ENGINE, verdict=Verdict.HOLDS_WITHIN, required=True, scope=scope)
    violated = tuple(
        attrs.evolve(
            base,
            property=finding.signature[0],
            case=finding.signature[1],
            required=is_required(finding.signature[0]),
            verdict=Verdict.VIOLATED,
            reason=finding.message,
            trace=attrs.evolve(finding.replay.trace, title=finding.message, source=f"vLLM {outcome.release}"),
        )
        for finding in found
    )
    unconfirmed = {name for name, _ in outcome.found} - {result.property for result in violated}
    lost = tuple(
        attrs.evolve(base, property=name, verdict=Verdict.UNKNOWN, reason="found once, and not again when replayed")
        for name in sorted(unconfirmed)
    )
    bad = {result.property for result in (*violated, *lost)}
    held = tuple(
        attrs.evolve(base, property=name, required=is_required(name))
        for name in (*JUDGED, NO_ENGINE_ERROR)
        if name not in bad
    )
    return (*violated, *lost, *held, *((_agreement(base, outcome),) if compared else ()))


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
        if found:
            return True
    return False


def _note(violation: Violation, trace: Trace, done: list[Action], outcome: Outcome) -> None:
    examples = outcome.found.setdefault((violation.property, violation.case), [])
    if len(examples) < EXAMPLES:
        examples.append(attrs.evolve(trace, actions=tuple(done)))


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


def _first_admissions(observations: list[Observation]) -> tuple[ExpectedAdmission, ...]:
    first: dict[str, ExpectedAdmission] = {}
    for observation in observations:
        for admission in observation.admissions:
            decision = admission.decision
            first.setdefault(decision.request, ExpectedAdmission(decision.request, decision.local, decision.external))
    return tuple(first.values())
