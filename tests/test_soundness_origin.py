"""A failed cell as a concrete state: of the encoding, of the model where it has it, and where it comes from."""

from __future__ import annotations

import pytest
import z3

from hitbound.state_picture import state_picture
from model.release import NEWEST
from properties.policy_guard import guarded
from solver.soundness.backwards import Asking
from solver.soundness.cells import ACTIONS
from solver.soundness.concrete import Example, Situation, chosen_by
from solver.soundness.engine_state import NotExpressible, as_system, scopes, unrest
from solver.soundness.forwards import seek_from, seek_violation
from solver.soundness.instance import INSTANCE
from solver.soundness.invariants import INVARIANTS, Invariant
from solver.soundness.origin import Origin, origin_of, state_in_words
from solver.soundness.terms import BOUNDARY, ENTRY
from solver.soundness.transition import Action
from solver.soundness.vocabulary import Entry, laws_of
from tests.soundness_mutants import Fault
from tests.test_soundness_tracing import IN_THE_MODEL, REFERENCE, fault_named

pytestmark = pytest.mark.mutants


def invariant_of(fault: Fault) -> Invariant:
    return next(invariant for invariant in INVARIANTS if invariant.name == fault.falls)


def actions_with(fault: Fault) -> list[Action]:
    return [fault.action if action.name == fault.action.name else action for action in ACTIONS]


def failing_state(fault: Fault) -> Example:
    assumed = [invariant for invariant in INVARIANTS if invariant.name not in fault.dropped]
    example = Situation(fault.action, assumed).breaking(invariant_of(fault))
    assert example is not None
    return example


def test_the_small_instance_satisfies_the_laws() -> None:
    def at_every_boundary(entry: Entry) -> tuple[z3.ArithRef, ...]:
        return INSTANCE.terms.of(BOUNDARY)

    solver = z3.SimpleSolver()
    solver.add(*INSTANCE.facts)
    laws = laws_of(INSTANCE.state.words, at_every_boundary)
    assert {ENTRY} <= {kind for law in laws for kind in law.variables}
    for law in laws:
        assert solver.check(z3.Not(INSTANCE.everywhere(law))) == z3.unsat, law.name


def test_an_action_that_keeps_the_invariant_has_no_such_state() -> None:
    """The faults below are not found in the encoding as it is."""
    evict = next(action for action in ACTIONS if action.name == "evict")
    stands = next(invariant for invariant in INVARIANTS if invariant.name == "lookup stands")
    assert Situation(evict, INVARIANTS).breaking(stands) is None


def test_the_model_breaks_from_the_concrete_state_where_a_release_has_the_fault() -> None:
    """A lost step whose hashes stay: a block is cached, and a step that loads into it is lost."""
    fault = fault_named("lost step, hashes stay")
    example = failing_state(fault)
    assert unrest(example.state) == ()
    _, synchronous, _ = scopes(IN_THE_MODEL[fault.name])
    system = as_system(example.state, synchronous)
    assert [block for block, label in enumerate(system.scheduler.pool.labels) if label is not None]
    assert any("(" in line for line in state_picture(system))
    assert seek_from(system, synchronous, guarded(REFERENCE), "STATE-LABEL").observations
    _, newest, _ = scopes(NEWEST)
    found = seek_from(as_system(example.state, newest), newest, guarded(REFERENCE), "STATE-LABEL")
    assert not found.observations
    assert "3,00" in found.searched


def test_a_state_in_the_middle_of_a_step_is_none_of_the_model() -> None:
    example = failing_state(fault_named("hit in the same step"))
    assert "a step is under construction" in unrest(example.state)
    with pytest.raises(NotExpressible, match="a step is under construction"):
        as_system(example.state, scopes(NEWEST)[0])
    told = "\n".join(state_in_words(example.state))
    assert "once it has run" in told
    assert "found block" in told


def test_the_exhaustive_search_finds_a_shortest_run() -> None:
    """A request hits what another writes in the same step; the newest release does not let it."""
    same_step, *_ = scopes(IN_THE_MODEL["hit in the same step"])
    newest, *_ = scopes(NEWEST)
    assert seek_violation(newest, guarded(REFERENCE), "HIT-RESUME")[0] is None
    trace, _ = seek_violation(same_step, guarded(REFERENCE), "HIT-RESUME")
    assert trace is not None
    assert len(trace.actions) <= 6


def test_two_actions_that_leave_the_same_open_are_known() -> None:
    named = {action.name: chosen_by(action) for action in ACTIONS}
    assert named["end step"] & named["lose step"]
    assert not named["touch"]
    assert not named["forward chunk"] & named["end step"]


def origin(name: str, old: bool) -> Origin:
    fault = fault_named(name)
    assumed = [invariant for invariant in INVARIANTS if invariant.name not in fault.dropped]
    release = IN_THE_MODEL[name] if old else NEWEST
    found = origin_of(fault.action, invariant_of(fault), actions_with(fault), assumed, REFERENCE, release)
    assert found is not None
    return found


@pytest.mark.slow
def test_a_chain_that_begins_in_the_initial_state_is_a_run_of_the_encoding() -> None:
    found = origin("start with a hole", old=False)
    assert found.begins
    assert found.system is not None
    assert not found.observations
    assert any("the model does not violate HIT-RESUME" in line for line in found.lines)


@pytest.mark.slow
def test_no_action_leads_into_a_state_that_the_invariants_exclude() -> None:
    """A lookup that found what is cached for something else by now: unreachable, which is what `lookup stands` says."""
    fault = fault_named("touch what is cached for something else by now")
    asking = Asking(ACTIONS, INVARIANTS)
    assert asking.making_possible(fault.action, invariant_of(fault), failing_state(fault).state) is None
    assert asking.certain


@pytest.mark.nightly
def test_the_model_breaks_under_the_release_that_has_the_fault_and_not_under_the_newest() -> None:
    before = origin("lost step, hashes stay", old=True)
    assert before.observations
    assert any("as well" in line for line in before.lines)
    after = origin("lost step, hashes stay", old=False)
    assert after.system is not None
    assert not after.observations


@pytest.mark.nightly
def test_a_fault_whose_chain_ends_between_two_steps_has_a_state_of_the_model() -> None:
    """In this configuration the model does not break from there: that takes two attention groups."""
    found = origin("allocate before touch", old=False)
    assert found.system is not None
    assert not found.observations


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["hit in the same step", "chunk that leaves its column half-way"])
def test_where_the_way_back_ends_is_said(name: str) -> None:
    """Between two steps, where the model has the state, or within one: which, depends on the solver's examples."""
    found = origin(name, old=False)
    assert (found.system is None) == any("the model is never in the first state" in line for line in found.lines)
    assert not found.observations
