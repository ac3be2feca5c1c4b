"""The proof of cache soundness: every action keeps every invariant, for any number of blocks and requests."""

from __future__ import annotations

import functools

import attrs
import pytest
import z3

from hitbound.soundness_text import soundness_text
from model.policies import POLICIES
from properties.verdict import AGREEMENT, CACHE_SOUNDNESS, Result, Verdict
from solver.decide import Decider, Outcome, follows
from solver.finding import Finding
from solver.prove import prove
from solver.soundness.cells import ACTIONS, row
from solver.soundness.deciding import RowSolver, reduced
from solver.soundness.geometry import LEMMAS, B, Lemma, N, Q, S
from solver.soundness.invariants import INVARIANTS
from solver.soundness.proof import Soundness, examine_soundness
from solver.soundness.results import soundness_results
from solver.soundness.terms import BLOCK
from solver.soundness.transition import Action, Transition, guard
from tests.soundness_mutants import FAULTS

BOTH = ("z3", "cvc5")

SMALL_ACTIONS = tuple(action for action in ACTIONS if action.name in ("evict", "free", "commit step"))


@functools.cache
def whole_matrix() -> Soundness:
    return examine_soundness()


@functools.cache
def small_matrix() -> Soundness:
    """Three columns; the invariants are all assumed."""
    return examine_soundness(SMALL_ACTIONS, interfaces=())


@pytest.mark.slow
def test_every_action_keeps_every_invariant() -> None:
    matrix = whole_matrix()
    assert len(matrix.cells) == (len(ACTIONS) + 1) * len(INVARIANTS)
    for cell in matrix.cells.values():
        assert cell.verdict is Verdict.PROVED, (cell.action.name, cell.invariant.name, cell.finding.reason)
        assert cell.finding.solvers == BOTH


@pytest.mark.slow
def test_what_decisions_take_from_the_cache_is_proved() -> None:
    for name, finding in whole_matrix().interfaces.items():
        assert finding.verdict is Verdict.PROVED, name
        assert finding.solvers == BOTH


@pytest.mark.slow
def test_every_invariant_is_used() -> None:
    used = {name for cell in whole_matrix().cells.values() for name in cell.finding.core if cell.touched}
    assert {invariant.name for invariant in INVARIANTS} <= used


def test_a_core_is_enough_and_none_of_it_can_be_spared() -> None:
    (evict,) = (action for action in ACTIONS if action.name == "evict")
    built = row(evict)
    (references,) = (invariant for invariant in INVARIANTS if invariant.name == "load is pinned")
    cell = built.cell(attrs.evolve(references, name="again"))
    core = RowSolver(built).decide(cell).core
    for left_out in ("", *core):
        small = reduced(cell.obligation, tuple(name for name in core if name != left_out))
        solver = z3.SimpleSolver()
        solver.add(*small.formulas, z3.Not(small.goal))
        assert (solver.check() == z3.unsat) == (left_out == "")


def test_an_action_that_cannot_happen_proves_nothing() -> None:
    def never(state: object, block: object) -> Transition:
        evicted = evict.build(state, block)
        return attrs.evolve(evicted, guards=(*evicted.guards, guard("never", z3.BoolVal(False))))

    (evict,) = (action for action in ACTIONS if action.name == "evict")
    matrix = examine_soundness((attrs.evolve(evict, build=never),), interfaces=())
    assert {matrix.cell("evict", invariant.name).verdict for invariant in INVARIANTS} == {Verdict.VACUOUS}


def test_an_action_that_changes_nothing_proves_nothing() -> None:
    idle = Action("idle", (BLOCK,), lambda state, block: Transition((), state), "nothing")
    matrix = examine_soundness((idle,), interfaces=())
    assert matrix.verdict is Verdict.VACUOUS


def test_a_failed_cell_is_told_as_a_small_state() -> None:
    (fault,) = (fault for fault in FAULTS if fault.name == "allocate before touch")
    (stands,) = (invariant for invariant in INVARIANTS if invariant.name == "lookup stands")
    matrix = examine_soundness((fault.action,), interfaces=())
    cell = matrix.cell("allocate", stands.name)
    assert cell.verdict is Verdict.CTI
    told = cell.finding.reason
    assert "found" in told
    assert "hash of b1" in told


def test_the_table_has_a_line_for_each_invariant_and_a_column_for_each_action() -> None:
    matrix = small_matrix()
    lines = soundness_text(matrix, 120).splitlines()
    for invariant in INVARIANTS:
        (line,) = (line for line in lines if line.startswith(f"  {invariant.name}  "))
        letters = line.removeprefix(f"  {invariant.name}").split()[0]
        assert len(letters) == len(SMALL_ACTIONS) + 1
        assert set(letters) <= {"P", "."}


def test_results_carry_every_cell_with_its_core_and_solvers() -> None:
    results = [result for result in soundness_results(small_matrix()) if "invariant" in result.detail]
    assert [result.detail["invariant"] for result in results] == [invariant.name for invariant in INVARIANTS]
    for result in results:
        assert set(result.detail["cells"]) == {"initially", *(action.name for action in SMALL_ACTIONS)}
        assert result.assumes == (AGREEMENT,)
        for cell in result.detail["cells"].values():
            assert cell["verdict"] == "PROVED"
            assert cell["solvers"] == list(BOTH)
            assert cell["vacuous"] is False
        assert all(cell["core"] == [result.detail["invariant"]] for cell in untouched(result))


def test_the_geometry_is_proved_for_all_sizes() -> None:
    lemmas = [result for result in soundness_results(small_matrix()) if "lemma" in result.detail]
    assert {result.property for result in lemmas} == {"GEO-BLOCK", "GEO-INTERVAL"}
    for result in lemmas:
        assert result.verdict is Verdict.PROVED, result.detail["lemma"]
        assert result.solvers == BOTH
        assert not result.assumes


@pytest.mark.mutants
@pytest.mark.parametrize("lemma", LEMMAS, ids=lambda lemma: lemma.name)
def test_a_lemma_needs_each_assumption_of_its_core(lemma: Lemma) -> None:
    core = Decider().decide(lemma.obligation).core
    assert core
    for left_out in core:
        assert not follows(lemma.obligation.without([left_out]))


@pytest.mark.mutants
def test_a_column_of_another_groups_width_is_no_lemma() -> None:
    """Report #53142: the column of a boundary by the smallest block of all groups."""
    ends = next(lemma for lemma in LEMMAS if lemma.name == "an aligned boundary ends the column before it")
    smaller = {**ends.given, "another group has a smaller block": z3.And(S < B, S >= 1)}
    wrong = attrs.evolve(ends, given=smaller, goal=S * (Q - 1) + S == N)
    assert Decider().decide_exactly(wrong.obligation).outcome is Outcome.FAILS


def untouched(result: Result) -> list[dict[str, object]]:
    """Cells of actions that change nothing of which the invariant speaks: it follows from itself."""
    return [cell for cell in result.detail["cells"].values() if not cell["touched"]]


def _resume(found: Finding) -> list[Result]:
    results = prove(POLICIES["vllm-0.28"], cache_soundness=found)
    return [result for result in results if result.property == "HIT-RESUME" and result.required]


def test_a_decision_names_what_cache_soundness_rests_on() -> None:
    for result in _resume(Finding(Verdict.PROVED, solvers=BOTH)):
        assert result.verdict is Verdict.PROVED
        assert AGREEMENT in result.assumes
        assert CACHE_SOUNDNESS not in result.assumes


def test_a_decision_is_not_proved_where_cache_soundness_is_not() -> None:
    for result in _resume(Finding(Verdict.CTI, reason="a cell fell")):
        assert result.verdict is Verdict.UNKNOWN
        assert "cache soundness" in result.reason
