"""Small caches, all of them: where a step of the reconciling lookup is wrong, one of these shows it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from model.configuration import ConfigurationClass
from model.lookup import Accepted, reconcile
from model.policy import Policy
from properties.policy_guard import PolicyRaised, guarded
from solver.confirm import minimal
from solver.finding import Finding, violated
from solver.scenario import BLOCK, Scenario, ScenarioSpec, specs_of

MOST_TOKENS = 7
MOST_TOKENS_WITH_TAILS = 4
"""Fewer where every boundary counts."""

REPLAYS = 20


def small_caches(configuration_class: ConfigurationClass) -> Iterator[Scenario]:
    """Every cache for a request of a few tokens that one request can leave, the shortest requests first."""
    tails = configuration_class.partial_tails
    unit = 1 if tails else BLOCK
    for tokens in range(1, (MOST_TOKENS_WITH_TAILS if tails else MOST_TOKENS) + 1):
        boundaries = range(unit, tokens + 1, unit)
        subsets = [frozenset(chosen) for size in range(len(boundaries) + 1) for chosen in _choices(boundaries, size)]
        second = configuration_class.second_attention_spec
        for full, windows, states in itertools.product((0, *boundaries), subsets if second else (None,), subsets):
            scenario = Scenario(tokens, full, states, windows, unit=unit)
            if scenario.can_be_built:
                yield scenario


def _choices(boundaries: range, size: int) -> Iterator[tuple[int, ...]]:
    return itertools.combinations(boundaries, size)


Lookup = tuple[tuple[ScenarioSpec, ...], int, int, tuple[Accepted, ...]]
"""The specs, the cap, the common hit, and every call of `accept`."""


def run_lookup(policy: Policy, scenario: Scenario) -> Lookup:
    """The reconciling lookup on a small cache. Raises PolicyRaised or PolicyLoops."""
    checked = guarded(policy)
    cap = checked.cap(scenario.tokens)
    specs = specs_of(scenario, cap)
    reconciled = reconcile(checked, specs, cap)  # type: ignore[arg-type]
    return specs, cap, reconciled.common, reconciled.accepted


def grows(lookup: Lookup) -> bool:
    """HIT-SHRINK fails: a candidate was raised, or is no number of tokens."""
    _, cap, common, accepted = lookup
    return common < 0 or cap < 0 or any(not 0 <= call.result <= call.candidate for call in accepted)


def is_no_member(lookup: Lookup) -> bool:
    """HIT-MEMBER fails: the common hit is not valid in some spec."""
    specs, _, common, _ = lookup
    return any(spec.find(common) != common for spec in specs)


def is_not_greatest(lookup: Lookup) -> bool:
    """REACH fails: a greater boundary is valid in every spec."""
    specs, cap, common, _ = lookup
    return any(n > common for n in range(1, cap + 1) if all(spec.find(n) == n for spec in specs))


def where(
    policy: Policy, wrong: Callable[[Lookup], bool], configuration_class: ConfigurationClass
) -> Iterator[tuple[Scenario, int]]:
    """Small caches for which the lookup is `wrong`, each with its common hit. Raises PolicyRaised or PolicyLoops."""
    for scenario in small_caches(configuration_class):
        lookup = run_lookup(policy, scenario)
        if wrong(lookup):
            _, _, common, _ = lookup
            yield scenario, common


def search(
    policy: Policy, property: str, wrong: Callable[[Lookup], bool], configuration_class: ConfigurationClass
) -> Finding | str:
    """A replayed trace from a small cache for which the lookup is `wrong`; or why there is none."""
    example = ""
    for scenario, _ in itertools.islice(where(policy, wrong, configuration_class), REPLAYS):
        trace = minimal(policy, property, None, scenario.trace())
        if trace is not None:
            return violated(trace)
        example = example or str(scenario)
    return f"not reproduced on the model: {example}" if example else "no cache of a few tokens shows it"


def search_raising(policy: Policy) -> Finding | str:
    """A replayed trace from a small cache in which the lookup raises; or why there is none."""
    for configuration_class in ConfigurationClass:
        for scenario in small_caches(configuration_class):
            try:
                run_lookup(policy, scenario)
            except PolicyRaised:
                trace = minimal(policy, "POLICY-TOTAL", None, scenario.trace())
                if trace is not None:
                    return violated(trace)
    return "no cache of a few tokens shows it"
