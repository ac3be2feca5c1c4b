"""The engine `conform` for a connector: which contract it keeps, whether its claim is honest, what it breaks.

Random traces run with the real connector under the real scheduler (`connector_engine.py`). Each in which it answered
is run again with every question asked three times: asking is pure if nothing else differs. What is found is made
smaller on the subject, and replayed there once more before it counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from model.actions import Action, Drain, EndLoad, EndSaves, Reset
from model.connector import Contract, Leaf
from model.errors import HitboundError
from model.policy import Policy
from model.system import Observation, System
from model.trace import Trace
from properties.invariant import Violation
from properties.minimise import minimise, size
from properties.replay import Replay, first_admissions
from properties.verdict import Result, Verdict
from subjects.conform import NO_ENGINE_ERROR, raised_in
from subjects.connector_engine import CONTENT, PATIENCE, Clause, ConnectorEngine, Run
from subjects.connector_traces import courses, random_trace
from subjects.courses import Profile, policy_of, rules_on_a_subject
from subjects.possible import possible
from subjects.process import Failure, SubjectProcess
from subjects.results import ENGINE

STARTS = "CONNECTOR-STARTS"
"""Property of a connector: it can be built, without a GPU and a network."""

CLAIM = "CONNECTOR-CLAIM"
"""Property of a connector: if it claims that lookups may diverge, it keeps at least the contract ENDPOINT."""

TIMES_ASKED = 3

EXAMPLES = 2
"""Traces of one finding that are kept; the one that is smallest once minimised is reported."""

_OF_CONTENT = frozenset(clause.value for clause in CONTENT)

STRENGTHS = ((Contract.BACKED, Clause.BACKED), (Contract.ENDPOINT, Clause.ENDPOINT), (Contract.FULL, Clause.FULL))

NOT_THE_CONNECTOR = (
    r"Cannot get \d+ free blocks from the pool",
    r"truncate_computed_blocks",
)
"""What the scheduler raises by itself, whatever the connector does (OWN-RESERVE; a lagging group's dropped tail)."""


LOST = ("crash", "hang", "garbage", "version")
"""Kinds of failure after which the process has to be started again: the campaign ends there."""


@attrs.frozen
class RealConnector:
    """A connector: a class that can be imported in the subject, and its configuration."""

    module: str
    name: str
    extra: dict[str, Any]
    role: str
    params: dict[str, Any]
    """What each request says about its transfer (vLLM: `kv_transfer_params`)."""
    path: tuple[str, ...]


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("quick", traces=8, actions=25, seed=0),
        Profile("ci", traces=30, actions=30, seed=0),
        Profile("nightly", traces=600, actions=40, seed=None),
    )
}


@attrs.frozen
class Signature:
    """What makes two violations the same finding. `raised` is what was raised, without its numbers; `late` if loads and
    saves ended late."""

    property: str
    raised: str
    late: bool


@attrs.frozen
class Bench:
    """Where a connector is run. `policy` is that of the release: it names the hits of an admission for the report."""

    process: SubjectProcess
    tested: RealConnector
    policy: Policy

    def run(self, trace: Trace, times_asked: int = 1) -> Run:
        """Run a trace until something is violated. What is not possible where it stands is left out."""
        engine = ConnectorEngine(trace.configuration, self.policy, self.process, attrs.asdict(self.tested), times_asked)
        run = engine.run
        refused = engine.build()
        if refused is not None:
            run.refused = refused
            run.violations.append(_error(refused, None))
            return run
        for index, action in enumerate(trace.actions):
            for seen in _act(engine, action):
                if not isinstance(seen, Failure):
                    run.observations.append(seen)
                elif seen.kind in LOST:
                    run.lost = seen
                elif not run.violations and not _is_of_the_scheduler(seen) and (run.claims or not _is_offered(trace)):
                    run.violations.append(_error(seen, index))
                run.violations[:] = [attrs.evolve(found, action=index) for found in run.violations]
                if run.violations or isinstance(seen, Failure):
                    return run
        return run


def _is_of_the_scheduler(failure: Failure) -> bool:
    return any(re.search(pattern, f"{failure.message}\n{failure.traceback}") for pattern in NOT_THE_CONNECTOR)


@attrs.define
class Outcome:
    """What a campaign met and found."""

    bench: Bench
    hybrid: bool
    claims: bool = False
    seen: bool = True
    worker_half: str = ""
    traces: int = 0
    steps: int = 0
    failed_loads: int = 0
    exercised: Counter[Clause] = attrs.Factory(Counter)
    found: dict[Signature, list[Trace]] = attrs.Factory(dict)
    not_repeatable: int = 0
    lost: Failure | None = None
    """How the process ended, or did not answer, which ended the campaign."""
    explained: set[str] = attrs.Factory(set)
    """Properties of what was found that occurred again, perhaps as another property."""


@attrs.frozen
class Finding:
    """A violation: the smallest trace, and what happened in it."""

    property: str
    message: str
    replay: Replay


def _act(engine: ConnectorEngine, action: Action) -> Iterator[Observation | Failure]:
    if isinstance(action, Reset) and _is_held(engine.system):
        return
    if not isinstance(action, EndLoad | EndSaves) and not possible(engine.system, action):
        return
    for _ in range(2 * PATIENCE if isinstance(action, Drain) else 1):
        try:
            seen = engine.act(action)
        except HitboundError:
            return
        yield seen
        if isinstance(seen, Failure) or engine.is_idle():
            return


def _is_held(system: System) -> bool:
    """Whether somebody beside the requests holds a block; vLLM then refuses to reset the cache."""
    requests = system.scheduler.requests.values()
    held = Counter(block for request in requests for table in request.tables for block in table)
    return any(references > held[block] for block, references in enumerate(system.scheduler.pool.refs) if block)


def conform(
    process: SubjectProcess,
    tested: RealConnector,
    profile: Profile,
    seed: int,
    progress: Callable[[str], None] = lambda _: None,
) -> Outcome | Failure:
    """Run the profile's traces with the connector; why it does not start, if it does not."""
    started = process.ask("connect", **attrs.asdict(tested))
    if isinstance(started, Failure):
        return started
    outcome = Outcome(Bench(process, tested, policy_of(process.release)), hybrid=started["hybrid"])
    for number in range(profile.traces):
        progress(f"{tested.name} on vLLM {process.release}: {outcome.traces} traces, {len(outcome.found)} findings")
        for course in courses(hybrid=outcome.hybrid):
            trace = random_trace(
                seed * profile.traces + number,
                course,
                rules_on_a_subject(process.release),
                failures=started["failures"],
                actions=profile.actions,
            )
            refused = _follow(trace, outcome)
            if refused is not None:
                return refused
            if outcome.lost is not None:
                return outcome
    return outcome


def _follow(trace: Trace, outcome: Outcome) -> Failure | None:
    """Run one trace, and once more with every question asked several times. A connector that cannot be built for the
    first trace does not start."""
    run = outcome.bench.run(trace)
    if outcome.traces == 0 and run.refused is not None:
        return run.refused
    outcome.traces += 1
    outcome.lost = run.lost
    outcome.claims, outcome.seen, outcome.worker_half = run.claims, run.seen, run.worker_half
    outcome.steps += sum(observation.plan is not None for observation in run.observations)
    outcome.failed_loads += run.failed_loads
    outcome.exercised.update(run.exercised)
    for violation in run.violations:
        done = trace.actions if violation.action is None else trace.actions[: violation.action + 1]
        _note(violation, attrs.evolve(trace, actions=done), outcome)
    if not run.violations and run.exercised[Clause.PURE] and _impure(trace, run, outcome.bench) is not None:
        if outcome.bench.run(trace).said == run.said:
            _note(Violation(Clause.PURE.value, None, ""), trace, outcome)
        else:
            outcome.not_repeatable += 1
    return None


def _impure(trace: Trace, once: Run, bench: Bench) -> str | None:
    """What differs when every question is asked several times; None if nothing does."""
    often = bench.run(trace, TIMES_ASKED)
    asked = f"asked {TIMES_ASKED} times instead of once"
    if often.violations:
        return f"{asked}: {often.violations[0].message}"
    for number, (before, after) in enumerate(zip(once.said, often.said, strict=False), 1):
        for what in before:
            if before[what] != after[what]:
                return f"{asked}, {what} of step {number} differ: {after[what]} instead of {before[what]}"
    if len(once.said) != len(often.said):
        return f"{asked}, it takes {len(often.said)} steps instead of {len(once.said)}"
    return None


def findings(outcome: Outcome) -> tuple[Finding, ...]:
    """Each finding with its smallest trace, which violates the same again; one for each property and exception.

    What a load lacks only if it ends late was not kept until then: it is the pin that is missing.
    """
    found: dict[tuple[str, str], Finding] = {}
    for signature, examples in sorted(outcome.found.items(), key=lambda item: item[0].late):
        example = min(examples, key=size)
        pinned = (
            signature.property in _OF_CONTENT
            and signature.late
            and _again(_varied(example, late=False), signature, outcome.bench) is None
        )
        name = Clause.PIN.value if pinned else signature.property
        if (name, signature.raised) in found:
            outcome.explained.add(signature.property)
            continue

        def violates(trace: Trace, signature: Signature = signature, pinned: bool = pinned) -> bool:
            if _again(trace, signature, outcome.bench) is None:
                return False
            return not pinned or _again(_varied(trace, late=False), signature, outcome.bench) is None

        plainer = (
            _varied(example, late=False, offered=False),
            _varied(example, offered=False),
            _varied(example, late=False),
        )
        example = next((trace for trace in plainer if violates(trace)), example)
        smallest = minimise(example, violates)
        plain = _varied(smallest, offered=False)
        smallest = minimise(plain, violates) if plain != smallest and violates(plain) else smallest
        finding = _again(smallest, signature, outcome.bench)
        if finding is not None and violates(smallest):
            outcome.explained.add(signature.property)
            message = finding.message + ("; it is there if the load ends at once" if pinned else "")
            if _is_offered(smallest) and not outcome.claims:
                message += "; the lookup was offered as if it claimed"
            found[name, signature.raised] = attrs.evolve(finding, property=name, message=message)
    return tuple(found.values())


def _varied(trace: Trace, *, late: bool = True, offered: bool = True) -> Trace:
    """The trace with loads that end as soon as they can, or without lookups that may diverge."""
    leaf = trace.configuration.connector
    if not isinstance(leaf, Leaf) or leaf.store is None:
        return trace
    store = attrs.evolve(leaf.store, asynchronous=leaf.store.asynchronous and late)
    changed = attrs.evolve(leaf, store=store, claims=leaf.claims and offered)
    return attrs.evolve(trace, configuration=attrs.evolve(trace.configuration, connector=changed))


def _is_offered(trace: Trace) -> bool:
    return isinstance(trace.configuration.connector, Leaf) and trace.configuration.connector.claims


def _again(trace: Trace, signature: Signature, bench: Bench) -> Finding | None:
    """The finding, if the trace shows it when it is run on a fresh scheduler."""
    leaf = trace.configuration.connector
    if not isinstance(leaf, Leaf) or leaf.store is None:
        return None
    run = bench.run(trace)
    message: str | None
    if signature.property == Clause.PURE.value:
        message = None if run.violations else _impure(trace, run, bench)
        violations: tuple[Violation, ...] = (Violation(signature.property, None, message or ""),)
    else:
        violations = tuple(run.violations)
        same = (one for one in violations if (one.property, raised_in(one)) == (signature.property, signature.raised))
        message = next((violation.message for violation in same), None)
    if message is None:
        return None
    seen = tuple(run.observations)
    replay = Replay(bench.policy.name, trace, seen, violations, first_admissions(seen))
    return Finding(signature.property, message, replay)


def results(outcome: Outcome, found: tuple[Finding, ...], scope: str) -> Iterator[Result]:
    """A result for each clause, for the claim, and for what was raised."""
    broken = {finding.property for finding in found}
    lost = {signature.property for signature in outcome.found} - outcome.explained
    for finding in found:
        yield attrs.evolve(
            _base(scope),
            property=finding.property,
            required=_is_required(finding.property, outcome),
            verdict=Verdict.VIOLATED,
            reason=finding.message,
            trace=attrs.evolve(
                finding.replay.trace, title=finding.message, source=f"vLLM {outcome.bench.process.release}"
            ),
        )
    for clause in Clause:
        if clause.value not in broken:
            yield _kept(clause, outcome, scope, lost=clause.value in lost)
    if outcome.lost is not None:
        yield attrs.evolve(_base(scope), property=NO_ENGINE_ERROR, verdict=Verdict.UNKNOWN, reason=_loss(outcome.lost))
    elif NO_ENGINE_ERROR not in broken:
        yield attrs.evolve(_base(scope), property=NO_ENGINE_ERROR)
    yield _claim(outcome, found, scope)


def strongest(outcome: Outcome, broken: set[str]) -> Contract | None:
    """The strongest contract that was seen to be kept; None if not even the weakest."""
    kept = None
    if Clause.EXACT.value in broken or not outcome.exercised[Clause.EXACT]:
        return None
    for contract, clause in STRENGTHS:
        if clause.value in broken or not outcome.exercised[clause]:
            break
        kept = contract
    return kept


def _claim(outcome: Outcome, found: tuple[Finding, ...], scope: str) -> Result:
    kept = strongest(outcome, {finding.property for finding in found})
    word = kept.name.lower() if kept is not None else "none"
    said = f"{'claims' if outcome.claims else 'claims nothing'}, contract kept: {word}"
    result = attrs.evolve(
        _base(f"{scope}; {said}"),
        property=CLAIM,
        detail={
            "claims": outcome.claims,
            "contract": word,
            "hybrid": outcome.hybrid,
            "worker half": outcome.worker_half,
            "exercised": {clause.value: outcome.exercised[clause] for clause in Clause},
            "failed loads": outcome.failed_loads,
        },
    )
    if not outcome.claims or (kept is not None and kept >= Contract.ENDPOINT):
        return result
    reason = f"it claims that its loads complete hits that diverge, and the contract it keeps is {word}, not endpoint"
    promised = {Clause.EXACT.value, Clause.BACKED.value, Clause.ENDPOINT.value}
    shown = [finding.replay.trace for finding in found if finding.property in promised]
    if not shown:
        return attrs.evolve(result, verdict=Verdict.UNKNOWN, reason=reason)
    return attrs.evolve(result, verdict=Verdict.VIOLATED, reason=reason, trace=min(shown, key=size))


def _kept(clause: Clause, outcome: Outcome, scope: str, *, lost: bool) -> Result:
    result = attrs.evolve(_base(scope), property=clause.value, required=_is_required(clause.value, outcome))
    if lost:
        return attrs.evolve(result, verdict=Verdict.UNKNOWN, reason="seen once, and not again when it was replayed")
    if clause is Clause.PURE and outcome.not_repeatable:
        reason = f"{outcome.not_repeatable} traces go differently each time, so asking more often says nothing"
        return attrs.evolve(result, verdict=Verdict.UNKNOWN, reason=reason)
    if not outcome.seen and clause not in (Clause.RANGE, Clause.PURE):
        return attrs.evolve(result, verdict=Verdict.UNKNOWN, reason=f"its loads are not seen: {outcome.worker_half}")
    if not outcome.exercised[clause]:
        return attrs.evolve(result, verdict=Verdict.VACUOUS, reason="no trace came to where it matters")
    return attrs.evolve(result, detail={"exercised": outcome.exercised[clause]})


def does_not_start(failure: Failure) -> Result:
    """The result of a connector that could not be built: nothing is known of it."""
    reason = f"it does not start: {_loss(failure)}"
    return attrs.evolve(_base(""), property=STARTS, verdict=Verdict.UNKNOWN, reason=reason)


def _loss(failure: Failure) -> str:
    last = failure.traceback.strip().splitlines()[-1:] if failure.kind in LOST else ()
    return "; ".join((f"{failure.kind}: {failure.message}", *last))


def _is_required(name: str, outcome: Outcome) -> bool:
    """Of the contracts, the weakest; of one that claims, what its claim promises."""
    if name == Clause.FULL.value:
        return False
    if name == Clause.ENDPOINT.value:
        return outcome.claims
    return outcome.hybrid or name != Clause.BACKED.value


def _base(scope: str) -> Result:
    return Result(property="", engine=ENGINE, verdict=Verdict.HOLDS_WITHIN, required=True, scope=scope)


def _note(violation: Violation, trace: Trace, outcome: Outcome) -> None:
    leaf = trace.configuration.connector
    late = isinstance(leaf, Leaf) and leaf.store is not None and leaf.store.asynchronous
    examples = outcome.found.setdefault(Signature(violation.property, raised_in(violation), late), [])
    if len(examples) < EXAMPLES:
        examples.append(trace)


def _error(failure: Failure, action: int | None) -> Violation:
    where = re.findall(r'File ".*?([^/"]+)", line \d+, in (\w+)', failure.traceback)[-1:]
    raised = ": ".join(part for part in (failure.kind, failure.message) if part)
    return Violation(
        NO_ENGINE_ERROR, None, raised + "".join(f", in {function} ({file})" for file, function in where), action
    )
