"""Speculative decoding: which blocks drafts need, where their states go, and what is cached of them.

The tables are those of vLLM 0.33 (`MambaManager.allocate_new_blocks`); tests/subject compares them block by block.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from model import allocation, worker
from model import speculation as drafting
from model.actions import Arrive, Drain, LeafAnswers, RejectedDrafts, ScriptedAnswer, Step
from model.configuration import Configuration, Group, GroupKind, StateMode
from model.connector import Connector, Contract, Leaf
from model.errors import ConfigurationError, HitboundError, UnsupportedConfiguration
from model.plan import Chunk, Table
from model.policies import POLICIES
from model.pool import EngineAssertion, new_pool
from model.release import RELEASES, Release
from model.rules.states import AcceptedDrafts, DraftPadding, LeftOut
from model.speculation import CopyBack
from model.system import System
from model.tokens import Segment
from properties.replay import Replay
from solver.scope import Scope, ScopeError
from tests.small_runs import V028, after, run

FULL, MAMBA = Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.MAMBA, 4)
NEWEST_RULES = Release()


def configured(
    drafts: int = 2, budget: int = 20, release: Release = NEWEST_RULES, connector: Connector | None = None
) -> Configuration:
    return Configuration(
        (FULL, MAMBA), pool_blocks=40, budget=budget, drafts=drafts, release=release, connector=connector
    )


def arrive(tokens: int, output: int = 9, name: str = "A", **answers: int) -> Arrive:
    said = tuple(LeafAnswers(leaf, (ScriptedAnswer(answer),)) for leaf, answer in answers.items())
    return Arrive(name, (Segment("x", tokens),), (Segment("y", output),), said)


def table(system: System, request: str = "A", group: int = 1) -> Table:
    return system.scheduler.requests[request].tables[group]


def cached(system: System, group: int = 1) -> list[int]:
    return sorted(len(label.prefix) for label in system.scheduler.pool.cached if label.group == group)


def test_a_request_gets_scratch_blocks_once_and_they_move_on_with_its_state() -> None:
    first, _ = after(configured(budget=4), arrive(14), Step())
    state, *scratch = table(first)
    assert len(scratch) == 2
    # From 4 to 12 in one chunk: the running state moves two columns on, so the first scratch block goes to the end.
    second, observation = after(configured(budget=4), arrive(14), Step(), Step(budget=8))
    assert observation.plan is not None
    (chunk,) = observation.plan.chunks
    assert (chunk.computed, chunk.end) == (4, 12)
    assert table(second)[:4] == (state, 0, scratch[1], scratch[0])
    assert chunk.new_blocks[1] == table(second)[3:]
    assert len(table(second)) == 5


def test_attention_has_room_for_what_a_draft_model_writes_ahead() -> None:
    draft = attrs.evolve(configured(drafts=3), groups=(attrs.evolve(FULL, draft=True), MAMBA))
    assert (configured(drafts=3).lookahead, draft.lookahead) == (0, 3)
    assert len(table(after(configured(drafts=3), arrive(3), Step())[0], group=0)) == 1
    assert len(table(after(draft, arrive(3), Step())[0], group=0)) == 2


@pytest.mark.parametrize(("rejected", "computed", "known"), [(0, 6, 7), (1, 5, 6), (2, 4, 5)])
def test_rejected_drafts_do_not_count(rejected: int, computed: int, known: int) -> None:
    wrong = (RejectedDrafts("A", rejected),) if rejected else ()
    system, observation = after(configured(), arrive(3), Step(), Step(rejected=wrong))
    request = system.scheduler.requests["A"]
    assert (request.computed, len(request.tokens), request.drafts) == (computed, known, 2)
    assert observation.execution is not None
    assert observation.execution.chunks[0].end == computed


def test_drafts_are_right_only_as_far_as_the_output_goes() -> None:
    system, observation = after(configured(), arrive(3, output=3), Step(), Step())
    assert "A" not in system.scheduler.requests
    assert observation.plan is not None
    assert (observation.plan.chunks[0].drafts, observation.plan.chunks[0].rejected) == (2, 1)


def chunk_of(computed: int, count: int, drafts: int, rejected: int) -> Chunk:
    prefix = tuple(map(str, range(computed + count)))
    return Chunk("A", prefix, computed, count, starts=False, new_blocks=(), drafts=drafts, rejected=rejected)


@pytest.mark.parametrize(
    ("computed", "drafts", "rejected", "copied", "offset"),
    [
        pytest.param(3, 2, 2, CopyBack(1, 0), 0, id="the next token ends the block, and runs in the next column"),
        pytest.param(3, 2, 0, CopyBack(1, 0), 2, id="the same, and the state goes on behind the running column"),
        pytest.param(2, 2, 1, CopyBack(2, 0), 1, id="the first draft ends the block"),
        pytest.param(2, 2, 2, None, 0, id="the draft that ends the block is wrong"),
        pytest.param(1, 2, 0, CopyBack(2, 0), 0, id="the last draft ends the block, in the column of the block itself"),
        pytest.param(4, 2, 0, None, 2, id="no boundary among the rows"),
    ],
)
def test_the_state_at_the_last_boundary_is_copied_back(
    computed: int, drafts: int, rejected: int, copied: CopyBack | None, offset: int
) -> None:
    chunk = chunk_of(computed, 1 + drafts, drafts, rejected)
    assert drafting.copy_back(chunk, 4) == copied
    assert drafting.accepted_offset(chunk, 4) == offset


def test_accepted_drafts_are_cached_at_once_or_with_the_next_step() -> None:
    at_once, _ = after(configured(), arrive(2), Step(), Step())
    later = Release(accepted_drafts=AcceptedDrafts.WITH_THE_NEXT_STEP)
    with_the_next, _ = after(configured(release=later), arrive(2), Step(), Step())
    assert at_once.scheduler.requests["A"].computed == with_the_next.scheduler.requests["A"].computed == 5
    assert (cached(at_once), cached(with_the_next)) == ([4], [])
    # By then the state is out of sight: its column is null.
    one_more, _ = after(configured(release=later), arrive(2), Step(), Step(), Step())
    assert (cached(one_more), cached(one_more, group=0)) == ([], [4])


FILLED = (arrive(8), Drain())
ANSWERING = Leaf("leaf", claims=False, contract=Contract.ENDPOINT)


@pytest.mark.parametrize(
    ("rule", "beside", "count"),
    [
        (DraftPadding.RESUMED_OR_BESIDE_DECODING, False, 3),
        (DraftPadding.BESIDE_DECODING, False, 1),
        (DraftPadding.BESIDE_DECODING, True, 3),
        (DraftPadding.NEVER, True, 1),
    ],
)
def test_a_request_with_one_token_left_is_padded(rule: DraftPadding, beside: bool, count: int) -> None:
    others = (arrive(3, name="B"), Step()) if beside else ()
    again = Arrive("C", (Segment("x", 8), Segment("z", 1)), (Segment("w", 3),))
    configuration = configured(release=Release(draft_padding=rule))
    system, observation = after(configuration, *FILLED, *others, again, Step())
    assert observation.plan is not None
    chunk = next(chunk for chunk in observation.plan.chunks if chunk.request == "C")
    assert (chunk.computed, chunk.count, chunk.rejected) == (8, count, count - 1)
    assert system.scheduler.requests["C"].computed == 9


ANSWERED = (LeafAnswers("leaf", (ScriptedAnswer(3),)),)
CUT = (
    arrive(3, name="B"),
    Step(),
    Arrive("C", (Segment("z", 4),), (Segment("w", 3),), ANSWERED),
    Step(),
    Step(),
)


def test_rows_that_are_cut_away_may_not_be_taken_for_rejected_drafts() -> None:
    """vLLM 0.26 to 0.28: a request resumes one token before a block boundary, its padded chunk is cut there, and the
    rows that were cut away are subtracted from what it has computed. Its state cannot be rewound."""
    before = configured(release=Release(draft_padding=DraftPadding.BESIDE_DECODING_EVEN_IF_CUT), connector=ANSWERING)
    replayed = run(V028, before, *CUT)
    assert {"OWN-EXCLUSIVE"} == {found.property for found in replayed.violations}
    assert "needs state@2" in replayed.violations[0].message
    after_the_fix = configured(release=Release(draft_padding=DraftPadding.BESIDE_DECODING), connector=ANSWERING)
    assert not run(V028, after_the_fix, *CUT).violations


def test_rules_by_release() -> None:
    assert RELEASES["0.24"].draft_padding is DraftPadding.NEVER
    assert RELEASES["0.28"].draft_padding is DraftPadding.BESIDE_DECODING_EVEN_IF_CUT
    assert RELEASES["0.29"].draft_padding is DraftPadding.BESIDE_DECODING
    assert RELEASES["0.30"].draft_padding is DraftPadding.RESUMED_OR_BESIDE_DECODING
    assert RELEASES["0.32"].accepted_drafts is AcceptedDrafts.WITH_THE_NEXT_STEP


def test_a_scratch_block_with_two_owners_cannot_move() -> None:
    pool, blocks = new_pool(5).take(3)
    moved = drafting.relocate(pool, (*blocks, 0), 3, 2, 2)
    assert moved == (blocks[0], 0, blocks[2], 0, blocks[1])
    with pytest.raises(EngineAssertion, match=f"scratch block {blocks[1]} is to be moved"):
        drafting.relocate(pool.touch(blocks[1:2]), (*blocks, 0), 3, 2, 2)


# Each leaves out one part of what the worker does with drafts; the content is wrong then, and both judges say so.
MUTANTS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "nothing is copied back": (worker, "copy_back", lambda chunk, block: None),
    "the state is read in the running column": (worker, "accepted_offset", lambda chunk, block: 0),
    "scratch blocks stay where they are": (allocation, "relocate", lambda pool, table, *_: table),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_part_of_the_worker_is_needed(monkeypatch: pytest.MonkeyPatch, mutant: str) -> None:
    module, name, faulty = MUTANTS[mutant]
    monkeypatch.setattr(module, name, faulty)
    actions = (arrive(13), Step(budget=4), Step(budget=8), *[Step()] * 4)
    replayed = run(V028, configured(), *actions)
    assert replayed.violations


def with_one_left_out(rule: LeftOut) -> Replay:
    """`b` gets no row in a step, for the prefill before it takes all 8 tokens. A draft of it was right before that."""
    configuration = attrs.evolve(configured(drafts=1, budget=8), release=Release(left_out=rule))
    requests = (("c", 2, 5), ("a", 30, 1), ("b", 1, 9))
    first, *others = (Arrive(name, (Segment(name, own),), (Segment(f"{name}y", out),)) for name, own, out in requests)
    return run(POLICIES["vllm-0.33"], configuration, first, Step(), *others, Drain())


@pytest.mark.parametrize(("rule", "violated"), [(LeftOut.REMEMBERED, set()), (LeftOut.FORGOTTEN, {"OWN-EXCLUSIVE"})])
def test_a_request_that_is_left_out_of_a_step_keeps_its_drafts(rule: LeftOut, violated: set[str]) -> None:
    """docs/findings/left-out-of-a-step.md"""
    replayed = with_one_left_out(rule)
    assert {violation.property for violation in replayed.violations} == violated
    steps = [[chunk.request for chunk in seen.plan.chunks] for seen in replayed.observations if seen.plan]
    assert steps[:6] == [["c"], ["c", "a", "b"], ["c", "a", "b"], ["a"], ["a"], ["a", "b"]]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"drafts": -1}, ConfigurationError, "-1 drafts"),
        ({"drafts": 2, "budget": 2}, ConfigurationError, "would wait for ever"),
        ({"drafts": 4, "budget": 9}, UnsupportedConfiguration, "two boundaries"),
        ({"drafts": 1, "state_mode": StateMode.ALL}, UnsupportedConfiguration, "states in every block"),
    ],
)
def test_what_is_refused(change: dict[str, object], error: type[HitboundError], message: str) -> None:
    with pytest.raises(error, match=message):
        attrs.evolve(configured(), **change)


def test_an_exhaustive_search_does_not_know_drafts() -> None:
    with pytest.raises(ScopeError, match="drafts"):
        Scope("drafts", configured(), (arrive(3),))


def test_a_hit_on_what_drafts_left_is_sound() -> None:
    """Every boundary that is cached of a run with drafts is a hit that a repetition may use."""
    wrong = Step(rejected=(RejectedDrafts("A", 1),))
    ended = (arrive(2), Step(), wrong, Step(), Drain())
    again = Arrive("B", (Segment("x", 2), Segment("y", 9)), (Segment("z", 3),))
    _, observation = after(configured(), *ended, again, Step())
    assert observation.admissions[0].decision.resume == 8
    after(configured(), *ended, again, Drain())
