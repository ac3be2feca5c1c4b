"""The policies by name: shipped ones, and proposed ones that no release has.

An era's name sets its cache-hit policy; see `docs/` for what each release changed.
"""

from __future__ import annotations

from model.errors import PolicyError
from model.policies.mutants import MUTANTS
from model.policies.proposed import (
    AuxiliaryRejects,
    DenseMinimum,
    FirstDivergence,
    KeepsAttention,
    NeverDeeper,
    ReferenceGroup,
)
from model.policies.reference import Reference
from model.policies.vllm import Vllm023, Vllm024, Vllm027, Vllm028
from model.policy import Policy

POLICIES: dict[str, Policy] = {
    policy.name: policy for policy in (Vllm023(), Vllm024(), Vllm027(), Vllm028(), Reference())
}
DEFAULT_POLICY = Vllm028.name

PROPOSED: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        ReferenceGroup(),
        DenseMinimum(),
        FirstDivergence(),
        KeepsAttention(),
        NeverDeeper(),
        AuxiliaryRejects(),
    )
}
"""Policies that were proposed or reviewed, most of them wrong; cases name them."""


def policy_named(name: str) -> Policy:
    """The policy called `name`: shipped, proposed, or a mutant; raises PolicyError."""
    known = {**POLICIES, **PROPOSED, **MUTANTS}
    if name not in known:
        raise PolicyError(f"there is no policy {name!r}; use one of {', '.join(known)}")
    return known[name]
