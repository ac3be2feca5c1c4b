"""The chunks in which vLLM 0.33.0 ran a lone request, written down from runs of the real scheduler."""

from __future__ import annotations

import attrs
import pytest

from model.actions import Action, Arrive, Drain, LeafAnswers, ScriptedAnswer, Step
from model.configuration import Configuration, Group, GroupKind
from model.connector import Contract, Leaf
from model.policies import POLICIES
from model.release import NEWEST, RELEASES, Release
from model.rules.lookup import PromptTail
from model.rules.states import ChunkGuard
from model.system import apply, initial
from model.tokens import Segment
from properties.judge import violations

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
        pytest.param((FULL, MAMBA), 16, 2, 100, 0, [12, 4, 1], id="a stop where the same prompt can resume"),
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


UP_TO_LAST_CACHEABLE = Release(chunk_guard=ChunkGuard.UP_TO_LAST_CACHEABLE)
DRAFT = attrs.evolve(FULL, draft=True)


def violated(release: Release, groups: tuple[Group, ...], budget: int, actions: tuple[Action, ...]) -> set[str]:
    system = initial(Configuration(groups, 40, budget, release=release))
    found: set[str] = set()
    for action in actions:
        system, observations = apply(system, POLICIES["vllm-0.28"], action)
        found |= {violation.property for observation in observations for violation in violations(observation)}
    return found


def test_a_chunk_that_ends_off_the_grid_is_continued_past_the_boundary_and_its_state_mislabelled() -> None:
    """vLLM #45477, repaired by #51113: a draft model lowers the last cacheable boundary of 7 tokens to 0, so no chunk
    end is guarded; one at 2 is continued to 7, and the state@2 left behind in column 0 is cached as state@4."""
    short = Arrive("a", (Segment("t", 7),), (Segment("o", 1),))
    actions = (short, Step(budget=2), Step())
    assert violated(UP_TO_LAST_CACHEABLE, (DRAFT, MAMBA), 100, actions) == {"STATE-LABEL"}
    assert violated(NEWEST, (DRAFT, MAMBA), 100, actions) == set()
    assert violated(UP_TO_LAST_CACHEABLE, (FULL, MAMBA), 100, actions) == set()


def test_an_aligned_prompt_was_one_chunk_and_left_a_state_that_the_same_prompt_cannot_reach() -> None:
    """vLLM #50235: up to 0.31. The prompt of 16 again is capped at 15, and no state lies below."""
    within = Release(prompt_tail=PromptTail.WITHIN_PROMPT)
    again = (Segment("t", 16),)
    actions = (Arrive("a", again, (Segment("o", 1),)), Drain(), Arrive("b", again, (Segment("p", 1),)), Drain())
    assert violated(within, (FULL, MAMBA), 100, actions) == {"REACH"}
    assert violated(NEWEST, (FULL, MAMBA), 100, actions) == set()


def test_a_block_wider_than_the_budget_never_runs_if_every_end_has_to_be_on_the_grid() -> None:
    """1Cat-vLLM #472: chunks of 3 tokens round down to none, for ever."""
    actions = (Arrive("a", (Segment("t", 14),), (Segment("o", 1),)), Drain())
    assert violated(UP_TO_LAST_CACHEABLE, (FULL, MAMBA), 3, actions) == {"PROGRESS"}
    assert violated(NEWEST, (FULL, MAMBA), 3, actions) == set()


def test_the_last_chunk_begins_where_a_draft_group_can_resume() -> None:
    """With a draft model the last state that a hit can reach lies one block lower."""
    assert chunks((FULL, MAMBA), 17, 2, 100, 0) == [16, 1, 1]
    assert chunks((DRAFT, MAMBA), 17, 2, 100, 0) == [12, 5, 1]


@pytest.mark.parametrize(("release", "expected"), [("0.27", [36, 4, 1, 1]), ("0.28", [36, 5, 1])])
def test_up_to_027_a_prefill_stops_at_its_last_hash_boundary_where_no_hit_can_end(
    release: str, expected: list[int]
) -> None:
    """As seen on 0.27.1 and 0.28.0: hits end at multiples of 8, and the draft model lowers the last stop to 36."""
    groups = (DRAFT, Group(GroupKind.SLIDING_WINDOW, 8, window=8), MAMBA)
    system = initial(Configuration(groups, 60, budget=100, release=RELEASES[release]))
    for action in (Arrive("a", (Segment("t", 41),), (Segment("o", 2),)), Drain()):
        system, observations = apply(system, POLICIES[f"vllm-{release}"], action)
    assert [chunk.count for seen in observations if seen.plan for chunk in seen.plan.chunks] == expected
