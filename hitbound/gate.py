"""Judges what engines found: evidence is confirmed or lowered here, never raised."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from hitbound.corpus_check import EXPECTATION, expectation_of
from hitbound.expectation import unmet
from hitbound.judgement import Judgement
from hitbound.signature import signature_of
from model.errors import IllegalAction
from model.policy import Policy
from properties.policy_guard import PolicyLoops
from properties.replay import Replay, replay
from properties.verdict import Result, Verdict

BOTH_SOLVERS = frozenset({"z3", "cvc5"})


def judge(policy: Policy, results: Iterable[Result], *, both_solvers: bool) -> tuple[Judgement, ...]:
    """The judgements on what engines found for `policy`.

    A violation counts only if its trace, replayed here once more, violates the same property. With `both_solvers`, a
    proof counts only if z3 and cvc5 agree.
    """
    return tuple(_judge(policy, result, both_solvers) for result in results)


def _judge(policy: Policy, result: Result, both_solvers: bool) -> Judgement:
    if result.verdict is Verdict.VIOLATED:
        return _confirm(policy, result)
    if result.verdict is Verdict.PROVED and both_solvers and not BOTH_SOLVERS <= set(result.solvers):
        return Judgement(policy.name, _without_second_solver(result))
    return Judgement(policy.name, result)


def _confirm(policy: Policy, result: Result) -> Judgement:
    if result.trace is None:
        reason = f"not inductive, and no trace shows it: {result.reason}"
        return Judgement(policy.name, attrs.evolve(result, verdict=Verdict.CTI, reason=reason))
    try:
        replayed = replay(result.trace, policy)
    except (IllegalAction, PolicyLoops) as error:
        reason = f"its trace cannot be replayed: {error}"
        return Judgement(policy.name, attrs.evolve(result, verdict=Verdict.CTI, reason=reason))
    if not _violates(result, policy, replayed):
        reason = f"its trace does not violate it when it is replayed: {result.reason}"
        return Judgement(policy.name, attrs.evolve(result, verdict=Verdict.CTI, reason=reason))
    return Judgement(policy.name, result, signature=signature_of(result, replayed), replay=replayed)


def _violates(result: Result, policy: Policy, replayed: Replay) -> bool:
    """Whether the trace lies in the result's cell and violates the result's property, in the result's case."""
    assert result.trace is not None
    configuration = result.trace.configuration
    if result.cell and (result.cell.worker_order, result.cell.configuration_class) != (
        configuration.worker_order,
        configuration.configuration_class,
    ):
        return False
    if result.property == EXPECTATION:
        expected = expectation_of(result.trace, policy)
        return expected is not None and bool(unmet(expected, replayed))
    return any(
        violation.property == result.property and result.case in (None, violation.case)
        for violation in replayed.violations
    )


def _without_second_solver(result: Result) -> Result:
    missing = ", ".join(sorted(BOTH_SOLVERS - set(result.solvers)))
    return attrs.evolve(
        result,
        verdict=Verdict.UNKNOWN,
        reason=f"{missing} did not confirm it and this profile needs both solvers; "
        "install it with `pip install 'hitbound[cvc5]'`, or use --profile quick",
    )
