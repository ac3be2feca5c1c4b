"""From a failed obligation to a trace: a small model of the counterexample, replayed on the concrete model.

z3 is asked for a counterexample of small sizes that a run can reach: hits are the greatest valid boundaries, extremes
are attained, all recurrent groups are one spec. What it says of the common hit is checked against the real loop, and
corrected until both agree. Only a trace that violates the same property again, in the same case, is a violation.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import attrs
import z3

from model.actions import LeafAnswers, ScriptedAnswer
from model.composition import claim_of
from model.connector import Composite, Connector, Contract, Leaf
from model.policy import Policy
from properties.policy_guard import PolicyRaised, guarded
from properties.requirements import release_of
from properties.verdict import Case, Cell
from solver import caches
from solver.arithmetic import exact
from solver.confirm import leaf, minimal
from solver.finding import Finding, violated
from solver.obligation import Obligation
from solver.scenario import BLOCK, MOST_TOKENS, Scenario
from solver.world import (
    ASYNCHRONOUS,
    CAP,
    CLAIMS,
    COMMON,
    CONNECTED,
    DEEPEST,
    FIRST_CHUNK,
    FULL,
    LOWEST_ATTENTION,
    RECURRENT,
    REFERENCE,
    SECOND,
    SHALLOWEST,
    STRENGTH,
    WINNER_CLAIMS,
    WITNESS,
    B,
    Decision,
    N,
    S,
    SpecSymbols,
)

DEEPEST_CACHED = z3.Int("deepest boundary at which anything is cached")

RLIMIT = 5_000_000
CORRECTIONS = 60
"""How often the common hit may be corrected for one number of tokens."""

REPLAYS = 12
"""Scenarios that are replayed for one failed obligation before it is left as a counterexample to induction."""

WRONG_CACHES = 40
"""Caches that are tried where the lookup is not sound."""


def counterexample(
    policy: Policy,
    property: str,
    case: Case | None,
    obligation: Obligation,
    decision: Decision,
    cell: Cell,
    *,
    lookup_is_sound: bool = True,
) -> Finding | str:
    """A replayed trace under `cell` that violates `property`, where `obligation` fails; or why there is none.

    If the lookup is not known to be sound, caches are tried for which its common hit is no valid boundary.
    """
    reason = f"no counterexample of at most {MOST_TOKENS} tokens was found that a run can reach"
    scenarios = _scenarios(policy, obligation, decision, cell, lookup_is_sound)
    for scenario in itertools.islice(scenarios, REPLAYS):
        trace = minimal(policy, property, case, scenario.trace())
        if trace is not None:
            return violated(trace)
        reason = f"not reproduced on the model, for example with {scenario}"
    return reason


def _scenarios(
    policy: Policy, obligation: Obligation, decision: Decision, cell: Cell, lookup_is_sound: bool
) -> Iterator[Scenario]:
    """Concrete counterexamples, those with few tokens first; each is new."""
    for tokens, known in _settings(policy, cell, lookup_is_sound):
        solver = z3.SimpleSolver()
        solver.set("rlimit", RLIMIT)
        solver.add(*obligation.exact.formulas, exact(z3.Not(obligation.goal)), *known)
        solver.add(*(exact(formula) for formula in _reachable(tokens, decision, cell)))
        for _ in range(CORRECTIONS):
            model = _plainest_model(solver, tokens, decision, cell)
            if model is None:
                break
            cached = _cached(policy, model, tokens, cell)
            same = _same_cache(cached)
            common = _common(policy, cached)
            if common is not None and common != model.eval(COMMON, True).as_long():
                solver.add(z3.Implies(same, COMMON == common))
                continue
            solver.add(z3.Not(z3.And(same, *_same_answer(model, decision))))
            scenario = _with_connector(policy, cached, model, decision, cell)
            if scenario is not None:
                yield scenario


def _plainest_model(solver: z3.Solver, tokens: int, decision: Decision, cell: Cell) -> z3.ModelRef | None:
    """Of all models the plainest, so that the same failure always gives the same trace: each preference is met if it
    can be, given those before it."""
    if solver.check() != z3.sat:
        return None
    model = solver.model()
    solver.push()
    for preference in _preferences(tokens, decision, cell):
        solver.push()
        solver.add(preference)
        if solver.check() == z3.sat:
            model = solver.model()
            solver.pop()
            solver.add(preference)
        else:
            solver.pop()
    solver.pop()
    return model


def _preferences(tokens: int, decision: Decision, cell: Cell) -> Iterator[z3.BoolRef]:
    """No connector rather than one, small numbers rather than great ones, and caches that need few evictions."""
    yield from (z3.Not(choice) for choice in (CONNECTED, CLAIMS, WINNER_CLAIMS))
    yield from (FULL <= n for n in (0, *_boundaries(tokens, cell)))
    for spec in _specs(cell):
        yield from (spec.valid(n) == (n <= FULL) for n in _boundaries(tokens, cell))
    yield from (decision.E <= n for n in range(tokens + 1))


def _specs(cell: Cell) -> tuple[SpecSymbols, ...]:
    """Specs beside the reference, whose valid boundaries are to be chosen."""
    second = cell.configuration_class.second_attention_spec
    return (RECURRENT, SECOND) if second else (RECURRENT,)


def _settings(policy: Policy, cell: Cell, lookup_is_sound: bool) -> Iterator[tuple[int, tuple[z3.BoolRef, ...]]]:
    """Where to look: the number of tokens, and what else is fixed."""
    if lookup_is_sound:
        yield from ((tokens, ()) for tokens in range(1, MOST_TOKENS + 1))
        return
    wrong = caches.where(policy, caches.is_no_member, cell.configuration_class)
    for scenario, common in itertools.islice(wrong, WRONG_CACHES):
        yield scenario.tokens, (_same_cache(scenario), COMMON == common)


def _unit(cell: Cell) -> int:
    return 1 if cell.configuration_class.partial_tails else BLOCK


def _boundaries(tokens: int, cell: Cell) -> range:
    return range(_unit(cell), tokens + 1, _unit(cell))


def _reachable(tokens: int, decision: Decision, cell: Cell) -> Iterator[z3.BoolRef]:
    """What is true of every run of the model with these sizes."""
    yield from (N == tokens, S == BLOCK, B == BLOCK, CAP <= tokens)
    specs = _specs(cell)
    for spec in specs:
        yield from _greatest_valid(spec, tokens, cell)
    yield from (REFERENCE.valid(n) == (n <= FULL) for n in range(tokens + 1))
    if cell.configuration_class.partial_tails:
        yield from _can_be_built(tokens, specs)
    yield WITNESS.hit == RECURRENT.hit
    yield from (WITNESS.valid(n) == RECURRENT.valid(n) for n in range(tokens + 1))
    hits = [FULL, *(spec.hit for spec in specs)]
    yield from (_attained(extreme, hits) for extreme in (SHALLOWEST, DEEPEST))
    yield _attained(LOWEST_ATTENTION, [FULL, *(spec.hit for spec in specs if spec is not RECURRENT)])
    yield z3.Implies(z3.Not(CONNECTED), z3.And(z3.Not(CLAIMS), decision.E == 0))
    yield z3.Implies(WINNER_CLAIMS, CLAIMS)
    least = z3.If(WINNER_CLAIMS, max(Contract.ENDPOINT, cell.contract), cell.contract.value)
    yield STRENGTH == least
    yield z3.Not(ASYNCHRONOUS)
    to_boundary = B - decision.resume % B
    yield FIRST_CHUNK == z3.If(to_boundary < N - decision.resume, to_boundary, N - decision.resume)


def _can_be_built(tokens: int, specs: tuple[SpecSymbols, ...]) -> Iterator[z3.BoolRef]:
    """As `Scenario.can_be_built`: only at the deepest boundary is something cached inside a block, and the second spec
    is full attention."""
    yield FULL <= DEEPEST_CACHED
    yield z3.Or(FULL % BLOCK == 0, FULL == DEEPEST_CACHED)
    for n in range(1, tokens + 1):
        for spec in specs:
            inside = n % BLOCK > 0 and spec is RECURRENT
            yield z3.Implies(spec.valid(n), n == DEEPEST_CACHED if inside else n <= DEEPEST_CACHED)
        if SECOND in specs:
            yield z3.Implies(SECOND.valid(n), SECOND.valid(n - 1))


def _greatest_valid(spec: SpecSymbols, tokens: int, cell: Cell) -> Iterator[z3.BoolRef]:
    yield spec.valid(0)
    for n in range(1, tokens + 1):
        if n in _boundaries(tokens, cell):
            yield z3.Implies(z3.And(spec.valid(n), n <= CAP), n <= spec.hit)
        else:
            yield z3.Not(spec.valid(n))


def _attained(extreme: z3.ArithRef, hits: Iterable[z3.ArithRef]) -> z3.BoolRef:
    return z3.Or(*(extreme == hit for hit in hits))


def _cached(policy: Policy, model: z3.ModelRef, tokens: int, cell: Cell) -> Scenario:
    def valid(spec: SpecSymbols) -> frozenset[int]:
        return frozenset(n for n in _boundaries(tokens, cell) if z3.is_true(model.eval(spec.valid(n), True)))

    return Scenario(
        tokens=tokens,
        full=model.eval(FULL, True).as_long(),
        recurrent=valid(RECURRENT),
        second=valid(SECOND) if SECOND in _specs(cell) else None,
        worker_order=cell.worker_order,
        unit=_unit(cell),
        release=release_of(policy),
    )


def _same_cache(scenario: Scenario) -> z3.BoolRef:
    same = [scenario.full == FULL]
    for spec, valid in ((RECURRENT, scenario.recurrent), (SECOND, scenario.second)):
        if valid is not None:
            same += [spec.valid(n) == (n in valid) for n in range(scenario.unit, scenario.tokens + 1, scenario.unit)]
    return z3.And(*same)


def _same_answer(model: z3.ModelRef, decision: Decision) -> tuple[z3.BoolRef, ...]:
    symbols = (CONNECTED, CLAIMS, WINNER_CLAIMS, decision.E)
    return tuple(symbol == model.eval(symbol, True) for symbol in symbols)


def _common(policy: Policy, scenario: Scenario) -> int | None:
    """What the real loop makes of the cache; None if it raises there, which the replay will show."""
    try:
        _, _, common, _ = caches.run_lookup(policy, scenario)
    except PolicyRaised:
        return None
    return common


def _with_connector(
    policy: Policy, scenario: Scenario, model: z3.ModelRef, decision: Decision, cell: Cell
) -> Scenario | None:
    if not z3.is_true(model.eval(CONNECTED, True)):
        return scenario
    claims = z3.is_true(model.eval(CLAIMS, True))
    found = connector_that(policy, claims, z3.is_true(model.eval(WINNER_CLAIMS, True)), cell.contract)
    if found is None:
        return None
    connector, winner = found
    E = model.eval(decision.E, True).as_long()
    answers = (LeafAnswers(winner.name, (ScriptedAnswer(E),)),) if E else ()
    return attrs.evolve(scenario, connector=connector, answers=answers)


def connector_that(
    policy: Policy, claims: bool, winner_claims: bool, contract: Contract
) -> tuple[Connector, Leaf] | None:
    """A small tree that claims, or does not, by the policy's own folds, and its leaf that is to answer."""
    alone = leaf("leaf", winner_claims, contract)
    claimer, other = leaf("claimer", True, contract), leaf("other", False, contract)
    winner = claimer if winner_claims else other
    candidates: tuple[tuple[Connector, Leaf], ...] = (
        (alone, alone),
        (Composite((claimer, other)), winner),
        (Composite((other, claimer)), winner),
    )
    return next((found for found in candidates if claim_of(guarded(policy), found[0]) is claims), None)
