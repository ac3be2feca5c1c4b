"""How a connector tree claims, answers and hands out what is to be loaded, by the policy's folds.

Mirrors `MultiConnector` (vllm/distributed/kv_transfer/kv_connector/v1/multi_connector.py). A policy may instead define
`claims(children)` and `choose(answers)` over whole lists; such a policy can be run, but be proved only for short lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from model.connector import Connector, Leaf, leaves_of
from model.policy import UNKNOWN, Answer, Child, Policy


def claims_by_list(policy: Policy) -> bool:
    """Whether the policy works out a composite's claim from the list of its children instead of folding."""
    return hasattr(policy, "claims")


def chooses_by_list(policy: Policy) -> bool:
    """Whether the policy works out a composite's answer from the list of answers instead of folding."""
    return hasattr(policy, "choose")


def claim_of(policy: Policy, connector: Connector) -> bool:
    """Whether the connector claims to restore lagging state, as the policy computes it for composites."""
    if isinstance(connector, Leaf):
        return connector.claims
    children = [Child(claim_of(policy, child)) for child in connector.children]
    if claims_by_list(policy):
        return bool(policy.claims(children))  # type: ignore[attr-defined]
    acc = policy.claim_start
    for child in children:
        acc = policy.claim_step(acc, child)
    return bool(policy.claim_end(acc))


def answer_of(policy: Policy, connector: Connector, ask: Callable[[Leaf], Answer]) -> Answer:
    """What the connector answers. Children are asked in order, and no further once the answer is unknown."""
    if isinstance(connector, Leaf):
        return ask(connector)
    if chooses_by_list(policy):
        answers: list[Answer] = []
        for child in connector.children:
            answers.append(answer_of(policy, child, ask))
            if answers[-1].unknown:
                return UNKNOWN
        return policy.choose(answers)  # type: ignore[attr-defined, no-any-return]
    acc = policy.choose_start
    for child in connector.children:
        acc = policy.choose_step(acc, answer_of(policy, child, ask))
        if acc.unknown:
            break
    return acc


@attrs.frozen
class Assignment:
    """After allocation, `leaf` is told to load `tokens` external tokens."""

    leaf: Leaf
    tokens: int


def assignments(policy: Policy, connector: Connector, source: int, tokens: int) -> Iterator[Assignment]:
    """What each leaf is told once `tokens` are adopted of the answer that the leaf number `source` stands behind."""
    yield from _assign(policy, connector, source, tokens, 0)


def _assign(policy: Policy, connector: Connector, source: int, tokens: int, first_leaf: int) -> Iterator[Assignment]:
    if isinstance(connector, Leaf):
        yield Assignment(connector, tokens)
        return
    for child in connector.children:
        width = sum(1 for _ in leaves_of(child))
        won = first_leaf <= source < first_leaf + width
        yield from _assign(policy, child, source, policy.assign(tokens, won), first_leaf)
        first_leaf += width
