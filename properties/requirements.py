"""What is required of a policy: the cells that every policy must hold, and what it asks for beyond."""

from __future__ import annotations

import attrs

from model.policies.vllm import ERAS
from model.policy import Policy
from model.release import NEWEST, Release
from properties.catalogue import INVARIANTS
from properties.invariant import Kind
from properties.verdict import REQUIRED_CELL, Case, Cell, Result


def required_cells(policy: Policy) -> tuple[Cell, ...]:
    """REQUIRED_CELL, and the cells in the policy's own `requires`: it can ask for more, never for less."""
    asked = (Cell(*axes) for axes in getattr(policy, "requires", ()))
    return tuple(dict.fromkeys((REQUIRED_CELL, *asked)))


def is_required(property: str) -> bool:
    """Whether a violation of `property` in a required cell counts: of everything but the protocol, and how far hits
    reach. A hit that could be longer costs time, not truth; what a policy promises of it, `at_least` says."""
    return property not in INVARIANTS or not (INVARIANTS[property].kind is Kind.PROTOCOL or property == "REACH")


def concerns(policy: Policy, case: Case | None) -> bool:
    """Whether a violation in `case` is one of the policy. What the rules of a release miss under any policy is a
    violation of that release; to `reference`, or a policy of the user's, it says nothing."""
    return case is not Case.RELEASE or policy.name.removeprefix("vllm-") in ERAS


def about(base: Result, property: str) -> Result:
    """`base` as a result about `property`, required only if that is."""
    return attrs.evolve(base, property=property, required=base.required and is_required(property))


def release_of(policy: Policy) -> Release:
    """The rules of the scheduler and the worker that the policy's name stands for: the newest unless it says so."""
    rules: Release = getattr(policy, "release", NEWEST)
    return rules


def at_least(policy: Policy) -> Policy | None:
    """The policy whose reported boundaries it promises to reach wherever that one is safe; None if there is none."""
    promised: Policy | None = getattr(policy, "at_least", None)
    return promised


def is_greatest(policy: Policy) -> bool:
    """Whether it promises to report the greatest boundary that is safe."""
    return bool(getattr(policy, "greatest", False))
