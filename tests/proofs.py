"""Proofs that several tests look at, each made once."""

from __future__ import annotations

import functools

from model.policies import POLICIES
from model.policies.mutants import MUTANTS
from properties.requirements import at_least, is_greatest
from properties.verdict import ALL_CELLS, REQUIRED_CELL, Case, Cell, Result, Verdict
from solver.prove import prove


@functools.cache
def proof_of(name: str, cells: tuple[Cell, ...] = ALL_CELLS) -> tuple[Result, ...]:
    """What `prove` finds out about a shipped policy or a mutant; `reference` has to reach what vllm-0.28 reaches."""
    policy = POLICIES.get(name) or MUTANTS[name]
    return prove(policy, cells=cells, at_least=at_least(policy), greatest=is_greatest(policy))


def mutant_proof(name: str) -> tuple[Result, ...]:
    """What `prove` finds out about a mutant where it is required."""
    return proof_of(name, (REQUIRED_CELL,))


def verdict_in(name: str, property: str, cell: Cell, case: Case | None = None) -> Verdict:
    """The verdict on one property in one cell."""
    (found,) = (r for r in proof_of(name) if (r.property, r.cell, r.case) == (property, cell, case))
    return found.verdict


def violated(results: tuple[Result, ...]) -> set[tuple[str, Case | None]]:
    """Required properties that are violated, with their case."""
    return {(r.property, r.case) for r in results if r.required and r.verdict is Verdict.VIOLATED}
