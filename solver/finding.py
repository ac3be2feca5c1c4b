"""What was found out about one property: the outcome of its obligations, before it becomes a result."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from model.trace import Trace
from properties.verdict import Verdict, weakest
from solver.decide import Decided, Outcome

_VERDICTS = {
    Outcome.HOLDS: Verdict.PROVED,
    Outcome.FAILS: Verdict.CTI,
    Outcome.VACUOUS: Verdict.VACUOUS,
    Outcome.UNKNOWN: Verdict.UNKNOWN,
}


@attrs.frozen
class Finding:
    """`core` names what the proof used; `reason` says why the verdict is not better; `scope` bounds HOLDS_WITHIN.

    `paths` are the ways through the policy's parts that were looked at, `feasible_paths` those that can be taken.
    """

    verdict: Verdict
    core: tuple[str, ...] = ()
    solvers: tuple[str, ...] = ()
    reason: str = ""
    scope: str = ""
    trace: Trace | None = None
    obligations: int = 0
    paths: int = 0
    feasible_paths: int = 0

    @property
    def proved(self) -> bool:
        return self.verdict is Verdict.PROVED


def finding_of(decided: Decided) -> Finding:
    """The finding on one obligation; one that fails is a counterexample to induction until a trace shows more."""
    return Finding(_VERDICTS[decided.outcome], decided.core, decided.solvers, decided.reason, obligations=1)


def unknown(reason: str) -> Finding:
    return Finding(Verdict.UNKNOWN, reason=reason)


def violated(trace: Trace) -> Finding:
    return Finding(Verdict.VIOLATED, solvers=("z3",), reason=trace.title, trace=trace)


def combined(findings: Iterable[Finding]) -> Finding:
    """All of them together: as weak as the weakest, agreed on by the solvers that agree on all."""
    parts = tuple(findings)
    verdict = weakest(part.verdict for part in parts)
    worst = next(part for part in parts if part.verdict is verdict)
    solvers = [solver for solver in parts[0].solvers if all(solver in part.solvers for part in parts)]
    return Finding(
        verdict,
        core=tuple(dict.fromkeys(name for part in parts for name in part.core)),
        solvers=tuple(solvers),
        reason=worst.reason,
        scope="; ".join(dict.fromkeys(part.scope for part in parts if part.scope)),
        trace=worst.trace,
        obligations=sum(part.obligations for part in parts),
        paths=sum(part.paths for part in parts),
        feasible_paths=sum(part.feasible_paths for part in parts),
    )


def resting_on(finding: Finding, name: str, basis: Finding) -> Finding:
    """The finding, given that it uses `name`, which was found to be `basis`. What was violated stays violated."""
    if basis.proved or finding.verdict.weakness > Verdict.UNKNOWN.weakness:
        return finding
    if basis.verdict is Verdict.HOLDS_WITHIN:
        return combined((finding, attrs.evolve(basis, core=(), obligations=0, solvers=finding.solvers)))
    reason = f"rests on {name}, which is {basis.verdict.value}"
    return attrs.evolve(finding, verdict=Verdict.UNKNOWN, reason=reason)
