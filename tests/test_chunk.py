"""The chunks in which vLLM 0.28.0 ran a lone request, written down from runs of the real scheduler."""

from __future__ import annotations

import pytest

from model.actions import Arrive, Drain, LeafAnswers, ScriptedAnswer
from model.configuration import Configuration, Group, GroupKind
from model.connector import Contract, Leaf
from model.policies import POLICIES
from model.system import apply, initial
from model.tokens import Segment

STORE = Leaf("leaf", claims=False, contract=Contract.BACKED)
FULL = Group(GroupKind.FULL_ATTENTION, 4)
MAMBA = Group(GroupKind.MAMBA, 4)
SMALL_MAMBA = Group(GroupKind.MAMBA, 2)
WINDOW = Group(GroupKind.SLIDING_WINDOW, 4, window=6)


def chunks(groups: tuple[Group, ...], prompt: int, output: int, budget: int, external: int) -> list[int]:
    """Tokens per step of a request that loads `external` tokens first."""
    answers = (LeafAnswers("leaf", (ScriptedAnswer(external),)),)
    system = initial(Configuration(groups, 40, budget, connector=STORE))
    for action in (Arrive("a", (Segment("t", prompt),), (Segment("o", output),), answers), Drain()):
        system, observations = apply(system, POLICIES["vllm-0.28"], action)
    return [chunk.count for seen in observations if seen.plan for chunk in seen.plan.chunks]


@pytest.mark.parametrize(
    ("groups", "prompt", "output", "budget", "external", "expected"),
    [
        pytest.param((FULL, MAMBA), 18, 2, 10, 0, [8, 8, 2, 1], id="chunks end on the grid"),
        pytest.param((FULL, MAMBA), 16, 2, 100, 0, [16, 1], id="an aligned prompt is one chunk"),
        pytest.param((FULL, MAMBA), 17, 2, 100, 0, [16, 1, 1], id="a stop at the last cacheable boundary"),
        pytest.param((FULL, MAMBA), 3, 2, 100, 0, [3, 1], id="shorter than a block"),
        pytest.param((FULL, MAMBA), 14, 3, 3, 0, [3, 1, 3, 1, 3, 1, 2, 1, 1], id="a block wider than the budget"),
        pytest.param((FULL, MAMBA), 14, 2, 100, 5, [3, 4, 2, 1], id="an unaligned R"),
        pytest.param((FULL, MAMBA), 14, 2, 100, 12, [2, 1], id="R at the last boundary"),
        pytest.param((FULL, MAMBA), 14, 2, 100, 13, [1, 1], id="R = N - 1"),
        pytest.param((FULL, WINDOW), 14, 2, 5, 0, [5, 5, 4, 1], id="without a recurrent group"),
        pytest.param(
            (SMALL_MAMBA, FULL), 13, 2, 7, 0, [6, 6, 1, 1], id="on the recurrent grid, not the attention grid"
        ),
    ],
)
def test_chunks(
    groups: tuple[Group, ...], prompt: int, output: int, budget: int, external: int, expected: list[int]
) -> None:
    assert chunks(groups, prompt, output, budget, external) == expected
