"""Each part of the rule about partial tails is needed: without it prove finds a trace, or says what is lost."""

from __future__ import annotations

import functools

import pytest

from model.configuration import ConfigurationClass, WorkerOrder
from model.connector import Contract
from model.policies.reference import Reference
from model.policies.tail_mutants import LESS_REACH, TAIL_FALLS, TAIL_MUTANTS
from model.policy import Policy
from properties.replay import replay
from properties.requirements import at_least, is_greatest
from properties.verdict import Cell, Result, Verdict
from solver.decide import Decider, Outcome
from solver.equivalence import decide_equivalence
from solver.prove import prove

pytestmark = [pytest.mark.mutants, pytest.mark.slow]

TAILS = tuple(
    Cell(Contract.BACKED, WorkerOrder.LOAD_BEFORE_COPY, configuration_class)
    for configuration_class in ConfigurationClass
    if configuration_class.partial_tails
)


@functools.cache
def proved(policy: Policy) -> tuple[Result, ...]:
    return prove(policy, cells=TAILS, required=TAILS, at_least=at_least(policy), greatest=is_greatest(policy))


@pytest.mark.parametrize("name", TAIL_MUTANTS)
def test_a_mutant_of_the_tail_rule_is_violated_with_a_trace(name: str) -> None:
    property, case = TAIL_FALLS[name]
    found = [
        result
        for result in proved(TAIL_MUTANTS[name])
        if result.property == property and (result.case.value if result.case else None) == case
    ]
    traces = [result.trace for result in found if result.verdict is Verdict.VIOLATED]
    assert traces
    for trace in traces:
        assert trace is not None
        assert trace.configuration.configuration_class.partial_tails
        assert property in {violation.property for violation in replay(trace, TAIL_MUTANTS[name]).violations}


@pytest.mark.parametrize("name", TAIL_MUTANTS)
def test_such_a_mutant_is_not_called_equivalent(name: str) -> None:
    assert decide_equivalence(Reference(), TAIL_MUTANTS[name], Decider()).outcome is not Outcome.HOLDS


def test_a_tail_that_gives_way_to_less_is_safe_but_reports_less() -> None:
    verdicts = {result.property: result.verdict for result in proved(LESS_REACH)}
    assert verdicts.pop("REACH") is Verdict.CTI
    assert set(verdicts.values()) == {Verdict.PROVED}
