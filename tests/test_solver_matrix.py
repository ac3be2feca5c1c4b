"""The matrix of each shipped policy: contract x worker order x configuration class."""

from __future__ import annotations

import attrs
import pytest

from model.configuration import ConfigurationClass, WorkerOrder
from model.connector import Contract
from model.policies import DISTINCT, POLICIES
from model.ready_connectors import DISHONEST
from properties.replay import replay
from properties.verdict import ALL_CELLS, REQUIRED_CELL, Case, Cell, Verdict
from solver.laws import CLAUSES
from tests.proofs import proof_of, verdict_in, violated

ONE, SECOND, ONE_TAILS, SECOND_TAILS = ConfigurationClass
LOAD_FIRST, COPY_FIRST = WorkerOrder
P, V = Verdict.PROVED, Verdict.VIOLATED

RESUME = {
    # (E = 0, E > 0), load before copy; the same with a second attention spec
    "vllm-0.23": {Contract.BACKED: (P, P), Contract.ENDPOINT: (P, P), Contract.FULL: (P, P)},
    "vllm-0.24": {Contract.BACKED: (V, V), Contract.ENDPOINT: (V, P), Contract.FULL: (V, P)},
    "vllm-0.27": {Contract.BACKED: (P, V), Contract.ENDPOINT: (P, P), Contract.FULL: (P, P)},
    "vllm-0.28": {Contract.BACKED: (P, P), Contract.ENDPOINT: (P, P), Contract.FULL: (P, P)},
    "reference": {Contract.BACKED: (P, P), Contract.ENDPOINT: (P, P), Contract.FULL: (P, P)},
}

RESUME_WITH_TAILS = {**RESUME, "vllm-0.28": {**RESUME["vllm-0.28"], Contract.BACKED: (P, V)}}
"""0.28 asks below the tail, where no state need be. (0.23 and 0.24 ask from the tail itself: GEO-INTERVAL.)"""

COVER = {
    # E > 0: (one attention spec, a second one that may lag)
    "vllm-0.23": {Contract.BACKED: (P, P), Contract.ENDPOINT: (P, P), Contract.FULL: (P, P)},
    "vllm-0.24": {Contract.BACKED: (V, V), Contract.ENDPOINT: (V, V), Contract.FULL: (P, P)},
    "vllm-0.27": {Contract.BACKED: (P, V), Contract.ENDPOINT: (P, V), Contract.FULL: (P, P)},
    "vllm-0.28": {Contract.BACKED: (P, V), Contract.ENDPOINT: (P, V), Contract.FULL: (P, P)},
    "reference": {Contract.BACKED: (P, P), Contract.ENDPOINT: (P, P), Contract.FULL: (P, P)},
}


@pytest.mark.parametrize("name", DISTINCT)
@pytest.mark.parametrize("contract", Contract)
def test_a_state_is_there_where_a_request_resumes(name: str, contract: Contract) -> None:
    for configuration_class in ConfigurationClass:
        cell = Cell(contract, LOAD_FIRST, configuration_class)
        expected = RESUME_WITH_TAILS if configuration_class.partial_tails else RESUME
        found = tuple(verdict_in(name, "HIT-RESUME", cell, case) for case in (Case.LOCAL, Case.EXTERNAL))
        assert found == expected[name][contract]


@pytest.mark.parametrize("name", DISTINCT)
@pytest.mark.parametrize("contract", Contract)
def test_the_attention_below_a_loaded_boundary_is_there(name: str, contract: Contract) -> None:
    for order in WorkerOrder:
        for classes in ((ONE, SECOND), (ONE_TAILS, SECOND_TAILS)):
            cells = [Cell(contract, order, configuration_class) for configuration_class in classes]
            found = tuple(verdict_in(name, "HIT-COVER", cell, Case.EXTERNAL) for cell in cells)
            assert found == COVER[name][contract]


@pytest.mark.parametrize("name", DISTINCT)
@pytest.mark.parametrize("property", ["HIT-COVER", "HIT-MEMBER"])
def test_a_local_boundary_is_valid_everywhere(name: str, property: str) -> None:
    case = Case.LOCAL if property == "HIT-COVER" else None
    expected = V if name == "vllm-0.24" else P
    assert {verdict_in(name, property, cell, case) for cell in ALL_CELLS} == {expected}


@pytest.mark.parametrize("name", DISTINCT)
def test_only_policies_without_a_tail_rule_ask_inside_a_block(name: str) -> None:
    for cell in ALL_CELLS:
        inside = cell.configuration_class.partial_tails and name in ("vllm-0.23", "vllm-0.24")
        assert verdict_in(name, "GEO-INTERVAL", cell) is (V if inside else P)


@pytest.mark.parametrize("name", DISTINCT)
def test_copy_before_load_is_red_for_every_policy_that_takes_any_synchronous_answer(name: str) -> None:
    for cell in ALL_CELLS:
        expected = V if cell.worker_order is COPY_FIRST and name != "reference" else P
        assert verdict_in(name, "LOAD-ORDER", cell) is expected
        if cell.worker_order is COPY_FIRST:
            assert verdict_in(name, "HIT-RESUME", cell, Case.EXTERNAL) is expected


def test_what_is_required_of_every_policy_falls_where_it_should() -> None:
    assert {name: violated(proof_of(name)) for name in DISTINCT} == {
        "vllm-0.23": set(),
        "vllm-0.24": {
            ("HIT-RESUME", Case.LOCAL),
            ("HIT-RESUME", Case.EXTERNAL),
            ("HIT-COVER", Case.LOCAL),
            ("HIT-COVER", Case.EXTERNAL),
            ("HIT-MEMBER", None),
            ("HIT-AGAIN", None),
            ("CAP-MEET", None),
        },
        "vllm-0.27": {("HIT-RESUME", Case.EXTERNAL), ("CAP-MEET", None)},
        "vllm-0.28": set(),
        "reference": set(),
    }


@pytest.mark.parametrize("name", DISTINCT)
def test_nothing_is_left_undecided(name: str) -> None:
    for result in proof_of(name):
        assert result.verdict in (P, V), f"{result.property}: {result.verdict} {result.reason}"
        if result.verdict is P:
            assert result.solvers == ("z3", "cvc5")
            assert result.trace is None
            assert not result.reason


@pytest.mark.parametrize("name", DISTINCT)
def test_every_violation_comes_with_a_short_trace_of_its_cell_that_shows_it_again(name: str) -> None:
    for result in proof_of(name):
        if result.verdict is not V:
            continue
        trace = result.trace
        assert trace is not None
        assert len(trace.actions) <= 8
        again = {(found.property, found.case) for found in replay(trace, POLICIES[name]).violations}
        assert any(property == result.property and result.case in (None, case) for property, case in again)
        assert trace.expectations[0].violates == tuple(sorted({property for property, _ in again}))
        if result.cell is not None:
            configuration = trace.configuration
            assert configuration.worker_order is result.cell.worker_order
            assert configuration.configuration_class is result.cell.configuration_class


def test_the_faults_of_the_releases_are_as_small_as_known() -> None:
    """0.24: attention 2, Mamba 0, E = 0 and R = 2. 0.27: attention 2, Mamba 0, E = 1 and R = 3."""
    (old,) = (
        r for r in proof_of("vllm-0.24") if (r.property, r.cell, r.case) == ("HIT-RESUME", REQUIRED_CELL, Case.LOCAL)
    )
    (new,) = (
        r for r in proof_of("vllm-0.27") if (r.property, r.cell, r.case) == ("HIT-RESUME", REQUIRED_CELL, Case.EXTERNAL)
    )
    assert "R = 2 = L 2 + E 0" in old.reason
    assert "R = 3 = L 2 + E 1" in new.reason


def test_a_tail_is_dropped_for_a_load_although_no_state_is_below_it() -> None:
    """All hits are 3, asked from 2, E = 2 and R = 4; no state at 2."""
    cell = attrs.evolve(REQUIRED_CELL, configuration_class=ONE_TAILS)
    (found,) = (r for r in proof_of("vllm-0.28") if (r.property, r.cell, r.case) == ("HIT-RESUME", cell, Case.EXTERNAL))
    assert "R = 4 = L 2 + E 2" in found.reason
    assert found.trace is not None
    decision = replay(found.trace, POLICIES["vllm-0.28"]).observations[-1].admissions[0].decision
    summary = decision.summary
    assert len(decision.prefix) == 5
    assert {summary.full_attention, summary.shallowest, summary.deepest, summary.common} == {3}
    assert (decision.first_local, decision.asked, decision.backed) == (3, 2, False)


def test_what_is_required_are_the_required_cell_and_what_depends_on_no_cell() -> None:
    for result in proof_of("vllm-0.28"):
        expected = result.cell in (None, REQUIRED_CELL) and result.property not in ("REACH", "ASK-UNKNOWN")
        assert result.required is expected


def test_hit_resume_says_what_it_rests_on() -> None:
    for result in proof_of("reference"):
        if result.property == "HIT-RESUME" and result.verdict is P:
            assert "cache soundness" in result.assumes


def test_every_clause_of_the_leaf_contract_is_needed() -> None:
    assumed = {name for result in proof_of("vllm-0.28") for name in result.assumes}
    assert CLAUSES.keys() == DISHONEST.keys()
    assert set(CLAUSES.values()) <= assumed


def test_reference_is_proved_in_every_cell() -> None:
    assert {result.cell for result in proof_of("reference") if result.cell is not None} == set(ALL_CELLS)
    assert {result.verdict for result in proof_of("reference")} == {P}


def test_reference_reports_the_greatest_safe_boundary_and_at_least_what_vllm_reports() -> None:
    (reach,) = (r for r in proof_of("reference") if r.property == "REACH")
    assert reach.verdict is P
    assert reach.required


def test_proofs_are_repeatable() -> None:
    from solver.prove import prove

    assert prove(POLICIES["vllm-0.27"]) == proof_of("vllm-0.27")
