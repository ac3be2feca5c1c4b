"""Replaying a trace before it counts: only one that violates the property again, on the model, is a violation."""

from __future__ import annotations

import attrs

from model.connector import Composite, Connector, Contract, Leaf
from model.errors import IllegalAction
from model.policy import Policy
from model.trace import Expectation, Trace
from properties.policy_guard import PolicyLoops
from properties.replay import replay
from properties.verdict import Case, Cell
from solver.scenario import MOST_ACTIONS


def confirmed(policy: Policy, property: str, case: Case | None, trace: Trace) -> Trace | None:
    """The trace with what it violates, if it violates `property` in `case` (None: in any) when it is replayed."""
    if len(trace.actions) > MOST_ACTIONS:
        return None
    try:
        violations = replay(trace, policy).violations
    except (IllegalAction, PolicyLoops):
        return None
    found = next((v for v in violations if v.property == property and case in (None, v.case)), None)
    if found is None:
        return None
    names = tuple(sorted({violation.property for violation in violations}))
    return attrs.evolve(trace, title=found.message, expectations=(Expectation(policy.name, violates=names),))


def minimal(policy: Policy, property: str, case: Case | None, trace: Trace) -> Trace | None:
    """`confirmed`, and then without the actions that the violation does not need; the configuration stays."""
    found = confirmed(policy, property, case, trace)
    if found is None:
        return None
    for position in reversed(range(len(trace.actions))):
        actions = found.actions[:position] + found.actions[position + 1 :]
        found = confirmed(policy, property, case, attrs.evolve(found, actions=actions)) or found
    return found


def adapted(trace: Trace, cell: Cell) -> Trace | None:
    """The same actions in the configuration of another cell; None if it is of another class."""
    if trace.configuration.configuration_class is not cell.configuration_class:
        return None

    def strength(connector: Connector) -> Connector:
        if isinstance(connector, Leaf):
            return leaf(connector.name, connector.claims, cell.contract)
        return Composite(tuple(strength(child) for child in connector.children))

    connector = trace.configuration.connector
    configuration = attrs.evolve(
        trace.configuration,
        worker_order=cell.worker_order,
        connector=None if connector is None else strength(connector),
    )
    return attrs.evolve(trace, configuration=configuration)


def leaf(name: str, claims: bool, contract: Contract) -> Leaf:
    """A leaf that keeps no more than the cell's contract and what its claim promises."""
    return Leaf(name, claims, max(contract, Contract.ENDPOINT) if claims else contract)
