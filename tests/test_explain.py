"""`hitbound explain`: the words come with the numbers of the run, and what is unknown is refused with what there is."""

from __future__ import annotations

import pytest

from hitbound.explain_trace import trace_explained
from model.policies import POLICIES
from properties.trace_document import read_trace
from tests.command_line import CORPUS, Hitbound

TRACE = CORPUS / "S02.json"


def words(policy: str) -> str:
    return "\n".join(trace_explained(read_trace(TRACE), POLICIES[policy]))


def test_a_trace_is_explained_with_its_numbers() -> None:
    said = words("vllm-0.24")
    for sentence in (
        "replay has N = 96 tokens, so at most 95 may be a hit",
        "full-attention group 0: the deepest boundary with KV in the cache is 64",
        "Mamba group 1: the deepest boundary with a state in the cache is 16",
        "the common hit, is 16",
        "The connector does not claim to restore lagging state; `lookup` gives it the per-group lookup",
        "`local` makes L = 64 of that",
        "asked from 64 and answers E = 16 (from store, which promises the contract backed)",
        "R = 64 + 16 = 80",
        "Without a load R = 80 is not valid in full-attention group 0 (64), Mamba group 1 (16)",
        "Then replay runs from 80: Mamba group 1 needs state@80",
        "HIT-RESUME says: When a request first runs",
        "Under vllm-0.28: L = 16, E = 16, R = 32; violates nothing.",
        "Decided by `local` at model/policies/vllm.py:",
    ):
        assert sentence in said


def test_a_trace_that_violates_nothing_is_explained_too() -> None:
    said = words("vllm-0.28")
    assert "It violates nothing." in said
    assert "R = 16 + 16 = 32" in said


def test_a_property_is_explained_with_a_run(hitbound: Hitbound) -> None:
    ran = hitbound("explain", "hit-last")
    assert ran.code == 0, ran.err
    assert "HIT-LAST (I7): R <= N - 1" in ran.out
    assert "HIT-LAST violated: r: R = 4 = L 4 + E 0, but N - 1 = 3" in ran.out


def test_an_event_is_explained(hitbound: Hitbound) -> None:
    assert "Runs have to reach it." in hitbound("explain", "DIVERGENT-HIT").out


@pytest.mark.slow
def test_an_obligation_is_explained_and_decided_anew(hitbound: Hitbound) -> None:
    held = hitbound("explain", "r <= n - 1", "--policy", "vllm-0.28")
    assert "Obligation of vllm-0.28: R <= N - 1." in held.out
    assert "contract: range" in held.out
    assert "for any sizes: it holds" in held.out
    failed = hitbound("explain", "state@R, E = 0", "--policy", "vllm-0.24")
    assert "It does not hold, for instance with" in failed.out


@pytest.mark.slow
def test_what_a_proof_says_of_a_property(hitbound: Hitbound) -> None:
    """Once for all cells in which it is alike."""
    said = hitbound("explain", "HIT-LAST", "--policy", "vllm-0.28").out.replace("\n    ", " ")
    assert "vllm-0.28, in 12 of 24 cells: HIT-LAST is PROVED by z3 and cvc5" in said
    assert "  honest to backed, load before copy, one attention spec" in said
    assert said.count("is PROVED") == 2


@pytest.mark.slow
def test_what_is_nothing_is_refused_with_what_there_is(hitbound: Hitbound) -> None:
    ran = hitbound("explain", "HIT-RESUM")
    assert ran.code == 2
    assert "no property (`hitbound invariants` lists them)" in ran.err
    assert "R <= N - 1" in ran.err
