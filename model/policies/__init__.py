"""The policies by name: shipped ones, and proposed ones that no release has.

A release's name, as `vllm-0.33`, sets its cache-hit policy and the rules beside it; docs/releases.md says what each
decides.
"""

from __future__ import annotations

from model.errors import PolicyError
from model.policies.adjusted import AuxiliaryOutputs, PrefixReplay
from model.policies.mutants import MUTANTS
from model.policies.proposed import DenseMinimum, FirstDivergence, KeepsAttention, NeverDeeper, ReferenceGroup
from model.policies.reference import Reference
from model.policies.vllm import ERAS, of_release
from model.policy import Policy

_SHIPPED = (*(of_release(release) for release in ERAS), Reference())

POLICIES: dict[str, Policy] = {policy.name: policy for policy in _SHIPPED}
DISTINCT: dict[str, Policy] = {policy.name: policy for policy in _SHIPPED if not policy.decides_as}
"""Those that decide like no earlier one."""

DEFAULT_POLICY = "vllm-0.33"
"""The newest release; `latest` is another name for it."""

ADJUSTED: dict[str, Policy] = {policy.name: policy for policy in (AuxiliaryOutputs(), PrefixReplay())}
"""0.33 where something changes what a connector has answered."""

PROPOSED: dict[str, Policy] = {
    policy.name: policy
    for policy in (ReferenceGroup(), DenseMinimum(), FirstDivergence(), KeepsAttention(), NeverDeeper())
}
"""Policies that were proposed or reviewed, most of them wrong; cases name them."""


def policy_named(name: str) -> Policy:
    """The policy called `name`: shipped, proposed, or a mutant; raises PolicyError."""
    known = {**POLICIES, **ADJUSTED, **PROPOSED, **MUTANTS}
    if name not in known:
        raise PolicyError(f"there is no policy {name!r}; use one of {', '.join(known)}")
    return known[name]
