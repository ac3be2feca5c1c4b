"""For each invariant the smallest run that violates it once a guard is removed: from the corpus, or a public report."""

from __future__ import annotations

import functools

import attrs

from hitbound.corpus import cases, counterexample_traces
from model.policies import policy_named
from model.policy import Policy
from model.trace import Trace
from properties.case_document import Case
from properties.replay import replay


@attrs.frozen
class Counterexample:
    """A run in which `invariant` does not hold. `guard` says what was removed, and `source` where the run is from."""

    invariant: str
    guard: str
    source: str
    policy: Policy
    trace: Trace

    @property
    def message(self) -> str:
        """What is violated, with the numbers."""
        violations = replay(self.trace, self.policy).violations
        return next((each.message for each in violations if each.property == self.invariant), "")


@functools.cache
def counterexamples() -> dict[str, Counterexample]:
    """Id of an invariant -> its counterexample, for all of which there is one."""
    found = {name: _of_trace(name, trace) for name, trace in counterexample_traces().items()}
    for case in sorted(cases(), key=lambda case: len(case.before.trace.actions)):
        for expected in case.violates:
            found.setdefault(expected.property, _of_case(expected.property, case))
    return found


def functions_behind(property: str) -> tuple[str, ...]:
    """The vLLM functions that public reports about the invariant name."""
    functions = [
        function
        for case in cases()
        if any(expected.property == property for expected in case.violates)
        for function in case.functions
    ]
    return tuple(sorted(set(functions)))


def _of_trace(property: str, trace: Trace) -> Counterexample:
    """Its first expectation is that of the policy without the guard; its title says what was removed."""
    return Counterexample(
        invariant=property,
        guard=trace.title,
        source=trace.source,
        policy=policy_named(trace.expectations[0].policy),
        trace=trace,
    )


def _of_case(property: str, case: Case) -> Counterexample:
    return Counterexample(
        invariant=property,
        guard=f"before the fix of {case.name}: {case.title}",
        source=f"record {case.number}: {', '.join(case.reports)}",
        policy=case.before.rules,
        trace=case.before.trace,
    )
