"""The connector tree of one admission, with what each connector claims and the leaf that won."""

from __future__ import annotations

from collections.abc import Iterator

from model.admission import Admission
from model.composition import claim_of
from model.connector import Connector, Leaf, leaves_of
from model.policy import Policy


def tree_lines(policy: Policy, connector: Connector, admission: Admission) -> list[str]:
    """One line per connector, children below their composite."""
    source = admission.decision.answer.source if admission.decision.external else None
    leaves = list(leaves_of(connector))
    winner = leaves[source] if source is not None and 0 <= source < len(leaves) else None
    return ["connector", *_lines(policy, connector, admission, winner, "")]


def _lines(
    policy: Policy, connector: Connector, admission: Admission, winner: Leaf | None, indent: str
) -> Iterator[str]:
    claims = "claims" if claim_of(policy, connector) else "does not claim"
    if isinstance(connector, Leaf):
        mark = "   <== wins" if connector is winner else ""
        contract = connector.contract.name.lower()
        yield f"{indent}+- {connector.name}: {claims}, contract {contract}{_loads(connector, admission)}{mark}"
        return
    yield f"{indent}+- composite of {len(connector.children)}: {claims}"
    for child in connector.children:
        yield from _lines(policy, child, admission, winner, indent + "   ")


def _loads(leaf: Leaf, admission: Admission) -> str:
    return "".join(
        f", loads [{load.start}, {load.end})" if load.assigned else ", loads or reports although told 0 tokens"
        for load in admission.loads
        if load.leaf == leaf
    )
