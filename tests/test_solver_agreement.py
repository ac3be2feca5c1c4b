"""The evaluator and the verdicts agree with the same function objects run on ints, for every small situation."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import attrs
import pytest
import z3

from model.configuration import ConfigurationClass, WorkerOrder
from model.connector import Contract
from model.policies import DISTINCT, POLICIES
from model.policies.mutants import MUTANTS
from model.policy import COMMON, PER_GROUP, Policy, Summary
from properties.verdict import Case, Cell, Verdict
from solver import world
from solver.arithmetic import exact
from solver.decision import explore_admission
from tests.proofs import verdict_in

BLOCK = 2
MOST_TOKENS = 5


@attrs.frozen
class Situation:
    """A request of N tokens, what is valid for it in each spec, and what the connector says.

    Hits are multiples of `unit`, and of BLOCK where they cannot end in a partial tail. `windows` is None without a
    second attention spec. `claims` is None without a connector.
    """

    N: int
    unit: int
    full: int
    states: frozenset[int]
    windows: frozenset[int] | None
    claims: bool | None
    E: int

    def valid(self, boundary: int) -> bool:
        return self.state_at(boundary) and self.attention_at(boundary)

    def state_at(self, boundary: int) -> bool:
        return boundary == 0 or boundary in self.states

    def attention_at(self, boundary: int) -> bool:
        second = self.windows is None or boundary == 0 or boundary in self.windows
        return boundary <= self.full and (boundary % BLOCK == 0 or boundary == self.full) and second

    def summary(self, policy: Policy) -> Summary:
        cap = policy.cap(self.N)
        hits = [self.full] + [max((n for n in valid if n <= cap), default=0) for valid in self.others]
        attention = hits[:-1]
        valid = [n for n in range(0, cap + 1, self.unit) if self.valid(n)]
        aligned = max(n for n in valid if n % BLOCK == 0)
        lookup = COMMON if self.claims is None else policy.lookup(self.claims)
        return Summary(lookup, self.full, min(hits), max(hits), min(attention), max(valid), aligned, BLOCK)

    @property
    def others(self) -> list[frozenset[int]]:
        return [valid for valid in (self.windows, self.states) if valid is not None]


def situations(configuration_class: ConfigurationClass) -> Iterator[Situation]:
    second = configuration_class.second_attention_spec
    unit = 1 if configuration_class.partial_tails else BLOCK
    for N in range(1, MOST_TOKENS + 1):
        boundaries = range(unit, N, unit)
        subsets = [frozenset(chosen) for size in range(len(boundaries) + 1) for chosen in choices(boundaries, size)]
        for full, states, windows in itertools.product((0, *boundaries), subsets, subsets if second else [None]):
            yield Situation(N, unit, full, states, windows, None, 0)
            for claims, E in itertools.product((True, False), range(N)):
                yield Situation(N, unit, full, states, windows, claims, E)


def choices(boundaries: range, size: int) -> Iterator[tuple[int, ...]]:
    return itertools.combinations(boundaries, size)


@attrs.frozen
class Adopted:
    asked: int
    local: int
    external: int


def admit(policy: Policy, situation: Situation) -> Adopted | None:
    """What the policy makes of it; None if no honest leaf can answer so much."""
    summary = situation.summary(policy)
    first_local, diverged = policy.local(summary)
    asked = policy.ask(first_local, summary)
    if situation.E and asked + situation.E > situation.N - 1:
        return None
    return Adopted(asked, *policy.settle(first_local, diverged, asked, situation.E, summary, situation.N))


def broken(situation: Situation, adopted: Adopted, contract: Contract) -> Iterator[tuple[str, Case | None]]:
    """What is not safe, told in plain Python. A tree that claims is one leaf that claims."""
    strength = max(contract, Contract.ENDPOINT) if situation.claims else contract
    if adopted.asked % BLOCK:
        yield "GEO-INTERVAL", None
    if adopted.external == 0:
        if not situation.state_at(adopted.local):
            yield "HIT-RESUME", Case.LOCAL
        if not situation.attention_at(adopted.local):
            yield "HIT-COVER", Case.LOCAL
        if not situation.valid(adopted.local):
            yield "HIT-MEMBER", None
    else:
        if strength is Contract.BACKED and not situation.state_at(adopted.asked):
            yield "HIT-RESUME", Case.EXTERNAL
        if strength is not Contract.FULL and not situation.attention_at(adopted.asked):
            yield "HIT-COVER", Case.EXTERNAL


STATED = [
    *itertools.product(("HIT-RESUME", "HIT-COVER"), (Case.LOCAL, Case.EXTERNAL)),
    *itertools.product(("HIT-MEMBER", "GEO-INTERVAL"), [None]),
]


@pytest.mark.parametrize("configuration_class", ConfigurationClass)
@pytest.mark.parametrize("name", [*DISTINCT, "fallback skipped", "maximum for the attention hit", "capability ignored"])
def test_the_verdicts_are_those_of_all_small_situations(name: str, configuration_class: ConfigurationClass) -> None:
    policy = POLICIES.get(name) or MUTANTS[name]
    found: set[tuple[str, Case | None, Contract]] = set()
    for situation in situations(configuration_class):
        adopted = admit(policy, situation)
        if adopted is not None:
            for contract in Contract:
                found |= {(*what, contract) for what in broken(situation, adopted, contract)}
    for (property, case), contract in itertools.product(STATED, Contract):
        cell = Cell(contract, WorkerOrder.LOAD_BEFORE_COPY, configuration_class)
        holds = (property, case, contract) not in found
        assert (verdict_in(name, property, cell, case) is Verdict.PROVED) is holds, f"{property} {case} {cell}"


@pytest.mark.parametrize("name", [*DISTINCT, "E trimmed", "cap N"])
def test_the_paths_say_what_the_functions_do_on_ints(name: str) -> None:
    policy = POLICIES.get(name) or MUTANTS[name]
    admission = explore_admission(policy)
    formula = exact(admission.exploration.formula)
    sample = random.Random(0).sample(list(situations(ConfigurationClass.SECOND_ATTENTION_SPEC_PARTIAL_TAILS)), 120)
    for situation in sample:
        adopted = admit(policy, situation)
        if adopted is not None:
            on_this = z3.substitute(formula, *given(policy, situation, admission.decision))
            assert says(on_this, admission.decision, adopted)
            assert not says(on_this, admission.decision, attrs.evolve(adopted, local=adopted.local + 1))
            assert not says(on_this, admission.decision, attrs.evolve(adopted, external=adopted.external + 1))


def given(policy: Policy, situation: Situation, decision: world.Decision) -> list[tuple[z3.ExprRef, z3.ExprRef]]:
    """The symbols of an admission with their values in the situation."""
    summary = situation.summary(policy)
    numbers = [
        (world.N, situation.N),
        (world.S, BLOCK),
        (world.COPIED_BEFORE_LOAD, 0),
        (world.CAP, policy.cap(situation.N)),
        (world.FULL, summary.full_attention),
        (world.SHALLOWEST, summary.shallowest),
        (world.DEEPEST, summary.deepest),
        (world.LOWEST_ATTENTION, summary.lowest_attention),
        (world.COMMON, summary.common),
        (world.ALIGNED_COMMON, summary.aligned_common),
        (decision.E, situation.E),
        (decision.first_local, policy.local(summary)[0]),
    ]
    truths = [
        (world.CONNECTED, situation.claims is not None),
        (world.CLAIMS, situation.claims is True),
        (world.ASYNCHRONOUS, False),
        (decision.per_group, summary.lookup is PER_GROUP),
    ]
    return [(symbol, z3.IntVal(number)) for symbol, number in numbers] + [
        (symbol, z3.BoolVal(truth)) for symbol, truth in truths
    ]


def says(formula: z3.BoolRef, decision: world.Decision, adopted: Adopted) -> bool:
    """Whether this is what is adopted, according to the formula."""
    symbols = ((decision.asked, adopted.asked), (decision.local, adopted.local), (decision.external, adopted.external))
    known = z3.substitute(formula, *((symbol, z3.IntVal(number)) for symbol, number in symbols))
    answer = z3.simplify(known)
    assert z3.is_true(answer) or z3.is_false(answer)
    return bool(z3.is_true(answer))
