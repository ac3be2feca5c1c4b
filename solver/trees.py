"""Small connector trees and what their leaves answer: where a composite is wrong, one of these shows it."""

from __future__ import annotations

from collections.abc import Iterator

from model.actions import LeafAnswers, ScriptedAnswer
from model.connector import Composite, Contract
from model.policy import Answer, Policy
from model.trace import Trace
from solver import answers, claims
from solver.confirm import leaf, minimal
from solver.finding import Finding, violated
from solver.scenario import Scenario

WIDEST = 3
"""Leaves of the widest composite that is replayed with every combination of answers."""


def answering(said: tuple[Answer, ...]) -> Trace:
    """A composite whose leaves answer one request, from an empty cache."""
    leaves = tuple(leaf(f"leaf{number}", False, Contract.BACKED) for number in range(len(said)))
    scripts = tuple(
        LeafAnswers(asked.name, (ScriptedAnswer(None if answer.unknown else answer.tokens, answer.asynchronous),))
        for asked, answer in zip(leaves, said, strict=True)
    )
    return _trace(Composite(leaves), scripts)


def claiming(said: tuple[bool, ...]) -> Trace:
    """A composite of leaves that claim or do not, asked for one request."""
    return _trace(Composite(tuple(leaf(f"leaf{n}", claim, Contract.BACKED) for n, claim in enumerate(said))), ())


def _trace(connector: Composite, scripts: tuple[LeafAnswers, ...]) -> Trace:
    return Scenario(4, full=0, recurrent=frozenset(), connector=connector, answers=scripts).trace()


def search_answers(policy: Policy, property: str) -> Finding | str:
    """A replayed trace in which a composite's answer violates `property`; or why there is none."""
    traces = (answering(said) for said in answers.short_lists(WIDEST))
    return _first(policy, property, traces)


def search_claims(policy: Policy, property: str) -> Finding | str:
    """A replayed trace in which a composite's claim violates `property`; or why there is none."""
    return _first(policy, property, (claiming(said) for said in claims.short_lists()))


def _first(policy: Policy, property: str, traces: Iterator[Trace]) -> Finding | str:
    for trace in traces:
        found = minimal(policy, property, None, trace)
        if found is not None:
            return violated(found)
    return "no composite of a few children shows it on the model"
