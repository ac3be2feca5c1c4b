"""Where a request resumes when parts of its prefix were evicted: L and E of runs of vLLM 0.28.0.

Blocks are 2 tokens, those of wide full attention 4. A first request of 8 tokens runs 2 tokens a step, then the blocks
that end at the given boundaries are evicted from the given groups, and a request that shares the 8 tokens is admitted.
"""

from __future__ import annotations

import pytest

from model.actions import Arrive, Evict, LeafAnswers, ScriptedAnswer, Step
from model.configuration import Configuration, Eviction, Group, GroupKind
from model.connector import Contract, Leaf
from model.policies import POLICIES
from model.system import apply, initial
from model.tokens import Segment

FULL = Group(GroupKind.FULL_ATTENTION, 2)
WIDE = Group(GroupKind.FULL_ATTENTION, 4)
WINDOW = Group(GroupKind.SLIDING_WINDOW, 2, window=4)
MAMBA = Group(GroupKind.MAMBA, 2)
STORE = Leaf("leaf", claims=False, contract=Contract.BACKED)
CLAIMER = Leaf("leaf", claims=True, contract=Contract.ENDPOINT)

Evicted = dict[int, tuple[int, ...]]


def admitted(groups: tuple[Group, ...], evicted: Evicted, connector: Leaf | None, tokens: int) -> tuple[int, int]:
    """L and E of the second request, to which the connector answers `tokens`."""
    shared = Segment("shared", 8)
    actions = [
        Arrive("first", (shared,), (Segment("out", 1),)),
        *[Step(budget=2)] * 4,
        *(Evict(group, "first", boundary) for group, boundaries in evicted.items() for boundary in boundaries),
        Arrive(
            "second",
            (shared, Segment("new", 4)),
            (Segment("more", 1),),
            (LeafAnswers("leaf", (ScriptedAnswer(tokens),)),) if connector else (),
        ),
        Step(),
    ]
    system = initial(Configuration(groups, 60, budget=100, connector=connector, eviction=Eviction.ADVERSARIAL))
    for action in actions:
        system, observations = apply(system, POLICIES["vllm-0.28"], action)
    decision = observations[0].admissions[0].decision
    return decision.local, decision.external


@pytest.mark.parametrize(
    ("groups", "evicted", "common", "divergent"),
    [
        ((FULL, MAMBA), {}, 8, 8),
        ((FULL, MAMBA), {1: (8,)}, 6, 8),
        ((FULL, MAMBA), {1: (2, 4, 6, 8)}, 0, 8),
        ((FULL, MAMBA), {0: (2,)}, 0, 0),
        ((FULL, MAMBA), {0: (6,)}, 4, 4),
        ((FULL, MAMBA), {0: (6,), 1: (4,)}, 2, 2),
        ((FULL, MAMBA), {0: (6, 8), 1: (2, 4)}, 0, 0),
        ((FULL, MAMBA, MAMBA), {1: (6, 8)}, 4, 8),
        ((FULL, MAMBA, MAMBA), {1: (8,), 2: (6,)}, 4, 8),
        ((FULL, WINDOW), {}, 8, 8),
        ((FULL, WINDOW), {1: (8,)}, 6, 6),
        ((FULL, WINDOW), {1: (6,)}, 4, 4),
        ((FULL, WINDOW), {1: (4, 8)}, 2, 2),
        ((FULL, WINDOW), {1: (2, 6)}, 0, 0),
        ((FULL, WINDOW), {0: (8,), 1: (2,)}, 6, 6),
        ((FULL, WINDOW, MAMBA), {1: (6,)}, 4, 8),
        ((FULL, WINDOW, MAMBA), {2: (4, 6, 8)}, 2, 8),
        ((WIDE, MAMBA), {1: (8,)}, 4, 8),
        ((WIDE, MAMBA), {1: (4, 8)}, 0, 8),
        ((WIDE, WINDOW), {1: (8,)}, 4, 4),
        ((WIDE, WINDOW), {1: (6,)}, 4, 4),
        ((WIDE, WINDOW, MAMBA), {0: (8,), 1: (8,), 2: (4, 8)}, 0, 4),
    ],
)
def test_where_a_request_resumes(groups: tuple[Group, ...], evicted: Evicted, common: int, divergent: int) -> None:
    assert admitted(groups, evicted, None, 0) == (common, 0)
    assert admitted(groups, evicted, STORE, 2) == (common, 2)
    assert admitted(groups, evicted, CLAIMER, 0) == (common, 0)
    assert admitted(groups, evicted, CLAIMER, 2) == (divergent, 2)
