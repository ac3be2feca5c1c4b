"""What a campaign on a subject found, as results: findings made smaller, what held, what was met, what differs."""

from __future__ import annotations

from collections.abc import Iterator, Set

import attrs

from model.trace import Trace
from properties.minimise import minimise, size
from properties.replay import Replay
from properties.requirements import is_required
from properties.verdict import REQUIRED_CELL, Result, Verdict
from subjects.conform import JUDGED, NO_ENGINE_ERROR, Outcome, Signature, run_on, signature_of
from subjects.courses import events_of
from subjects.process import SubjectProcess

ENGINE = "conform"

SAME_DECISIONS = "SAME-DECISIONS"
"""Property of a run: the model of the release decides as the real scheduler does."""

EVENT_SHARES = "EVENT-SHARES"
"""Property of a campaign: what makes its traces worth running happens in as many as elsewhere."""


@attrs.frozen
class Share:
    """In how many of a hundred traces one of `events` happened in a campaign that found much: random traces of about 27
    steps on the schedulers of 0.26 to 0.33."""

    name: str
    events: frozenset[str]
    measured: int


SHARES = (
    Share("copy on write", frozenset({"TAIL-COPIED", "TAIL-MOVED"}), 57),
    Share("eviction of a cached block", frozenset({"EVICTED-BY-REUSE", "EVICTED-AT-WILL"}), 55),
    Share("external load", frozenset({"EXTERNAL-HIT"}), 51),
    Share("preemption", frozenset({"PREEMPTED"}), 25),
    Share("partial tail", frozenset({"TAIL-HIT"}), 17),
    Share("divergent admission", frozenset({"DIVERGENT-HIT"}), 12),
)


@attrs.frozen
class Finding:
    """A violation on the subject: the smallest trace, and what happened in it."""

    signature: Signature
    replay: Replay

    @property
    def message(self) -> str:
        trace = self.replay.trace
        return next(found.message for found in self.replay.violations if signature_of(found, trace) == self.signature)


def findings(outcome: Outcome, process: SubjectProcess) -> Iterator[Finding]:
    """Each finding with its smallest trace, which violates the same again on a fresh scheduler."""

    for signature, examples in outcome.found.items():

        def again(candidate: Trace, signature: Signature = signature) -> Replay | None:
            replayed = run_on(candidate, outcome.policy, process)
            found = {signature_of(violation, candidate) for violation in replayed.violations}
            return replayed if signature in found else None

        smallest = min((minimise(example, lambda trace: again(trace) is not None) for example in examples), key=size)
        replayed = again(smallest)
        if replayed is not None:
            yield Finding(signature, replayed)


def results(outcome: Outcome, found: tuple[Finding, ...], scope: str, *, compared: bool) -> Iterator[Result]:
    """What held or was seen only once, what happened and, with `compared`, how far the model agrees."""
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
    yield from _events(_base(scope), outcome)
    if compared:
        yield _agreement(_base(scope), outcome)


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


def _base(scope: str) -> Result:
    return Result(property="", engine=ENGINE, verdict=Verdict.HOLDS_WITHIN, required=True, scope=scope)


def _events(base: Result, outcome: Outcome) -> Iterator[Result]:
    """Every event that had to happen in some course, and the shares of those that say most about the traces."""
    traces = outcome.traces.total()
    awaited = frozenset[str]().union(*(events_of(course, outcome.policy) for course in outcome.traces))
    for name in sorted(awaited):
        met = _traces_with({name}, outcome)
        detail = {"kind": "sometimes", "traces": met, "percent": _percent(met, traces)}
        result = attrs.evolve(base, property=name, detail=detail)
        if not met:
            result = attrs.evolve(result, verdict=Verdict.VACUOUS, reason="never happened in these traces; run more")
        yield result
    shares = {
        share: _percent(_traces_with(share.events, outcome), traces) for share in SHARES if share.events & awaited
    }
    told = ", ".join(f"{share.name} {percent} % ({share.measured})" for share, percent in shares.items())
    result = attrs.evolve(
        base,
        property=EVENT_SHARES,
        required=False,
        scope=f"{told}; in brackets what a campaign had that found much",
        detail={share.name: {"percent": percent, "elsewhere": share.measured} for share, percent in shares.items()},
    )
    rarer = [share.name for share, percent in shares.items() if percent < share.measured]
    if rarer:
        result = attrs.evolve(result, verdict=Verdict.UNKNOWN, reason=f"rarer than elsewhere: {', '.join(rarer)}")
    yield result


def _traces_with(events: Set[str], outcome: Outcome) -> int:
    """Traces in which one of `events` happened."""
    return sum(not happened.isdisjoint(events) for happened in outcome.happened)


def _percent(part: int, whole: int) -> int:
    return round(100 * part / whole) if whole else 0


def _agreement(base: Result, outcome: Outcome) -> Result:
    endings = {ending.value: count for ending, count in sorted(outcome.endings.items(), key=lambda item: item[0].value)}
    courses = {
        str(course): {"traces": count, "differences": sum(other == course for other, *_ in outcome.differences)}
        for course, count in outcome.traces.items()
    }
    result = attrs.evolve(base, property=SAME_DECISIONS, detail={**endings, "courses": courses})
    if not outcome.differences:
        return result
    _, trace, difference = min(outcome.differences, key=lambda found: size(found[1]))
    reason = f"{len(outcome.differences)} traces differ from the model; the smallest, {trace.title}: {difference}"
    return attrs.evolve(result, verdict=Verdict.UNKNOWN, reason=reason)
