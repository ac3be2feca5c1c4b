"""States in every block (vLLM's "all" mode): what a chunk writes, what is hit, and a block that no chunk completes."""

from __future__ import annotations

import attrs
import pytest

from model.actions import Action, Arrive, Drain, Step
from model.configuration import Configuration, Group, GroupKind, StateMode
from model.errors import UnsupportedConfiguration
from model.policies import POLICIES
from model.release import NEWEST, Release
from model.rules.scheduling import Reservation
from model.rules.states import StateWrites
from model.system import System, apply, initial
from model.tokens import Segment
from properties.judge import violations
from properties.twin import disagreement, execute, new_twin
from solver.scope import Scope, ScopeError

GROUPS = (Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.MAMBA, 4))
EVERY = Configuration(GROUPS, 60, budget=100, state_mode=StateMode.ALL)
BEGUN = Release(state_writes=StateWrites.BLOCKS_BEGUN_BY_THE_CHUNK)


def run(configuration: Configuration, *actions: Action) -> tuple[System, set[str], list[int]]:
    """The system at the end, what was violated, and the hit of each admission. The numeric twin agrees all along."""
    system, twin = initial(configuration), new_twin(configuration)
    violated: set[str] = set()
    hits: list[int] = []
    for action in actions:
        system, observations = apply(system, POLICIES["vllm-0.28"], action)
        for observation in observations:
            violated |= {violation.property for violation in violations(observation)}
            hits += [admission.decision.local for admission in observation.admissions]
            if observation.plan is not None and observation.execution is not None:
                twin, outputs = execute(configuration, twin, observation.plan)
                flagged = {read.request for read in observation.execution.bad_reads}
                assert disagreement(configuration, observation.plan, outputs, flagged) == ()
    return system, violated, hits


def arrive(name: str, shared: int, own: int) -> Arrive:
    return Arrive(name, (Segment("x", shared), Segment(name, own)), (Segment(f"{name}-out", 2),))


@pytest.mark.parametrize(("shared", "hit"), [(3, 0), (4, 4), (7, 4), (13, 12), (16, 16)])
def test_one_chunk_leaves_a_state_at_every_boundary(shared: int, hit: int) -> None:
    _, violated, hits = run(EVERY, arrive("a", 16, 3), Drain(), arrive("b", shared, 3), Drain())
    assert (violated, hits) == (set(), [0, hit])


def test_chunks_need_not_end_on_the_grid() -> None:
    _, violated, hits = run(EVERY, arrive("a", 16, 3), *[Step(budget=5)] * 4, Drain(), arrive("b", 13, 3), Drain())
    assert (violated, hits) == (set(), [0, 12])


def test_a_block_that_no_chunk_completes_holds_an_earlier_state() -> None:
    """vLLM #34587: a chunk ends inside a block, the next one begins there and does not write the state at its end."""
    before = attrs.evolve(EVERY, release=BEGUN)
    actions = (arrive("a", 10, 3), Step(budget=3), Drain(), arrive("b", 6, 3), Drain())
    _, violated, hits = run(before, *actions)
    assert (violated, hits) == ({"STATE-LABEL", "HIT-RESUME"}, [0, 4])
    _, violated, hits = run(attrs.evolve(before, release=NEWEST), *actions)
    assert (violated, hits) == (set(), [0, 4])


def test_what_does_not_know_every_state_refuses_it() -> None:
    with pytest.raises(ScopeError, match="states in every block"):
        Scope("every", EVERY, (arrive("a", 4, 1),))
    with pytest.raises(UnsupportedConfiguration, match="not estimated"):
        attrs.evolve(EVERY, release=Release(reservation=Reservation.ESTIMATED))
