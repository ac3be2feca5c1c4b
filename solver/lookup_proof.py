"""Findings about the reconciling lookup: HIT-SHRINK, HIT-MEMBER and REACH of the loop around `accept`."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from model.configuration import ConfigurationClass
from model.policy import Policy
from properties.verdict import Verdict
from solver import caches, reconcile
from solver.caches import Lookup
from solver.decide import Decider
from solver.finding import Finding, combined, finding_of, resting_on
from solver.obligation import Obligation
from solver.reconcile import Step, explore_accept, explore_cap
from solver.totality import Part, examine_part


@attrs.frozen
class LookupFindings:
    """`member` by configuration class; the others hold in every class. `total` is POLICY-TOTAL for `accept` and
    `cap`."""

    shrink: Finding
    member: dict[ConfigurationClass, Finding]
    greatest: Finding
    total: Finding
    step: Step


def examine_lookup(policy: Policy, decider: Decider) -> LookupFindings:
    """Everything about the loop. Raises PolicyError for what cannot be made symbolic."""
    step, cap = explore_accept(policy), explore_cap(policy)
    parts = (
        Part("accept", step.exploration, step.laws, lambda: caches.search_raising(policy), small=reconcile.SMALL),
        Part("cap", cap, reconcile.LENGTH, lambda: caches.search_raising(policy), small=reconcile.SMALL),
    )
    total = combined(examine_part(part, decider) for part in parts)

    def decide(
        obligations: tuple[Obligation, ...],
        property: str,
        wrong: Callable[[Lookup], bool],
        configuration_class: ConfigurationClass = ConfigurationClass.SECOND_ATTENTION_SPEC,
    ) -> Finding:
        if not total.proved:
            return resting_on(Finding(Verdict.PROVED), "POLICY-TOTAL", total)
        finding = combined(finding_of(decider.decide(obligation)) for obligation in obligations)
        if finding.proved:
            return finding
        found = caches.search(policy, property, wrong, configuration_class)
        return found if isinstance(found, Finding) else attrs.evolve(finding, reason=finding.reason or found)

    shrink = decide((reconcile.starts(cap), reconcile.shrinks(step)), "HIT-SHRINK", caches.grows)
    member: dict[ConfigurationClass, Finding] = {}
    for configuration_class in ConfigurationClass:
        obligation = reconcile.keeps_members(step, configuration_class)
        finding = decide((obligation,), "HIT-MEMBER", caches.is_no_member, configuration_class)
        if reconcile.ALIGNED in finding.core:
            aligned = finding_of(decider.decide(reconcile.keeps_aligned(step)))
            finding = combined((finding, aligned))
        member[configuration_class] = resting_on(finding, "HIT-SHRINK", shrink)
    greatest = decide((reconcile.keeps_the_greatest(step),), "REACH", caches.is_not_greatest)
    if reconcile.SHRINK in total.core:
        total = resting_on(total, "HIT-SHRINK", shrink)
    return LookupFindings(shrink, member, resting_on(greatest, "HIT-SHRINK", shrink), total, step)
