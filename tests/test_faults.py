"""Each faulty policy or leaf violates what it should, with the numbers; sound ones violate nothing on the same runs."""

from __future__ import annotations

import pytest

from model.actions import Action, Arrive, Drain, Step
from model.connector import Composite, Contract, Leaf
from model.policies import POLICIES
from model.policies.mutants import CapN, FallbackSkipped
from model.policy import Policy
from model.trace import ExpectedAdmission
from tests.faulty_policies import FAULTS, Fault, Raises
from tests.small_runs import CLAIMER, FILLED, STATE_LOST, STORE, V028, arrive, found, hybrid, run


@pytest.mark.mutants
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.property}-{fault.policy.name}")
def test_a_faulty_policy_or_leaf_violates(fault: Fault) -> None:
    assert found(run(fault.policy, fault.configuration, *fault.actions), fault.property) == fault.told


@pytest.mark.parametrize("policy", [V028, POLICIES["reference"]], ids=lambda policy: policy.name)
@pytest.mark.parametrize("actions", dict.fromkeys(fault.actions for fault in FAULTS))
def test_a_sound_policy_with_honest_leaves_violates_nothing(policy: Policy, actions: tuple[Action, ...]) -> None:
    leaves = {said.leaf for action in actions if isinstance(action, Arrive) for said in action.answers}
    connector = Composite(tuple(Leaf(name, claims=False, contract=Contract.BACKED) for name in sorted(leaves)))
    assert run(policy, hybrid(connector), *actions).violations == ()


def test_a_policy_that_raises_is_not_total() -> None:
    replayed = run(Raises(), hybrid(STORE), *FILLED, arrive("r", 4, 3), Step(), Step())
    (violation,) = replayed.violations
    assert (violation.property, violation.action) == ("POLICY-TOTAL", 3)
    assert "`local` raised ZeroDivisionError: of all things" in violation.message


def test_what_follows_from_a_bad_read_is_not_reported_again() -> None:
    # The whole output of r is wrong and r's blocks are cached; the one read that started it is what is reported.
    replayed = run(FallbackSkipped(), hybrid(CLAIMER), *STATE_LOST, arrive("r", 4, 5), Drain())
    assert [violation.property for violation in replayed.violations] == ["HIT-RESUME", "HIT-MEMBER", "HIT-AGAIN"]


def test_a_replay_tells_what_was_admitted_first_and_stops_where_the_engine_does() -> None:
    replayed = run(V028, hybrid(STORE), *FILLED, arrive("r", 4, 3, store=2), Drain())
    assert replayed.admissions == (ExpectedAdmission("fill", 0, 0), ExpectedAdmission("r", 4, 2))
    crashed = run(CapN(), hybrid(), *FILLED, arrive("r", 4, 0), Step(), Step())
    assert crashed.observations[-1].after.assertion
    assert crashed.violations[-1].action == 3
