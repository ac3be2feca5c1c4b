"""Partial tails: hits that end inside a block, aliases, copies before a write, and what a longer load does to a tail.

Numbers were checked against the scheduler of vLLM 0.28.0 and 0.33.0 by subjects/differential.py.
"""

from __future__ import annotations

import attrs
import pytest

from model.actions import Abort, Arrive, Drain, EndLoad, Evict, LeafAnswers, ScriptedAnswer, Step
from model.chunk import chunk_tokens
from model.configuration import Configuration, Group, GroupKind
from model.plan import Copy
from model.policies import POLICIES
from model.pool import Label
from model.release import Release
from model.request import Request
from model.rules.lookup import PromptTail, Truncation, WindowPublication
from model.rules.scheduling import Reservation
from model.rules.states import OutgrownAlias, RunningMark, SharedTail, TailCopyHold
from model.system import System
from properties.replay import Replay
from tests.small_runs import CLAIMER, STORE, V028, arrive, found, hybrid, run

REFERENCE = POLICIES["reference"]
FULL, WIDE = Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.MAMBA, 4)


WITHIN = Release(prompt_tail=PromptTail.WITHIN_PROMPT)


def tails(*groups: Group, release: Release = WITHIN, **more: object) -> Configuration:
    """Blocks of 4 tokens, a hash unit of 1, and as many tokens a step as there are."""
    configuration = hybrid(None, *(groups or (FULL, WIDE)), budget=64)
    return attrs.evolve(configuration, hash_block=1, release=release, **more)


def cached(system: System, text: str, group: int) -> dict[int, tuple[int, ...]]:
    """Boundary -> blocks that `group` has cached for that many tokens of the request `text`."""
    labels = system.scheduler.pool.cached
    return {
        len(label.prefix): blocks
        for label, blocks in sorted(labels.items(), key=lambda entry: len(entry[0].prefix))
        if label.group == group and label.prefix == system.texts[text][: len(label.prefix)]
    }


def unsafe(replayed: Replay) -> list[str]:
    """What is violated, REACH aside: up to 0.31 a prompt that ends at a hash boundary is cached there in vain."""
    return [violation.message for violation in replayed.violations if violation.property != "REACH"]


def last(replayed: Replay) -> System:
    return replayed.observations[-1].after


def copies(replayed: Replay) -> list[Copy]:
    plans = [observation.plan for observation in replayed.observations]
    return [copy for plan in plans if plan is not None for copy in plan.copies]


def tables(replayed: Replay, request: str) -> tuple[tuple[int, ...], ...]:
    return last(replayed).scheduler.requests[request].tables


@pytest.mark.parametrize(
    ("groups", "hash_block", "fine_grained", "alignment"),
    [
        ((FULL, WIDE), 4, False, 4),
        ((FULL, WIDE), 2, True, 2),
        ((Group(GroupKind.FULL_ATTENTION, 2), WIDE), 2, True, 2),
        ((FULL, WIDE, Group(GroupKind.SLIDING_WINDOW, 2, 6)), 2, True, 2),
        # A sliding window is never looked up inside a block.
        ((FULL, WIDE, Group(GroupKind.SLIDING_WINDOW, 4, 6)), 2, False, 4),
        # What is wider than the hash unit must be a Mamba block.
        ((Group(GroupKind.FULL_ATTENTION, 8), WIDE), 4, False, 8),
    ],
)
def test_hits_end_at_hash_boundaries_where_every_lookup_can(
    groups: tuple[Group, ...], hash_block: int, fine_grained: bool, alignment: int
) -> None:
    configuration = Configuration(groups, pool_blocks=9, budget=9, hash_block=hash_block)
    assert (configuration.fine_grained, configuration.hit_alignment) == (fine_grained, alignment)


def test_the_last_boundary_of_the_prompt_is_cached_and_hit() -> None:
    replayed = run(V028, tails(), arrive("p", 6, 0), Drain(), arrive("q", 6, 3), Step())
    assert cached(last(replayed), "p", 0).keys() == cached(last(replayed), "p", 1).keys() == {4, 6}
    decision = replayed.observations[-1].admissions[0].decision
    assert (decision.local, decision.external, decision.summary.common, decision.summary.aligned_common) == (6, 0, 6, 4)
    assert not unsafe(replayed)


@pytest.mark.parametrize(
    ("rule", "prompt", "boundaries"),
    [
        (PromptTail.WITHIN_PROMPT, 6, {4, 6}),
        (PromptTail.WITHIN_PROMPT, 7, {4, 6}),
        (PromptTail.WITHIN_PROMPT, 8, {8}),
        (PromptTail.BELOW_LAST_TOKEN, 6, {4}),
        (PromptTail.BELOW_LAST_TOKEN, 7, {4, 6}),
        (PromptTail.BELOW_LAST_TOKEN, 8, {4, 6, 8}),
    ],
)
def test_where_the_tail_of_a_prompt_is_cached(rule: PromptTail, prompt: int, boundaries: set[int]) -> None:
    configuration = attrs.evolve(tails(release=Release(prompt_tail=rule)), hash_block=2)
    replayed = run(V028, configuration, arrive("p", prompt, 0), Drain())
    assert cached(last(replayed), "p", 1).keys() == boundaries


@pytest.mark.parametrize(
    ("start", "budget", "tokens"),
    [(0, 64, 4), (4, 64, 2), (6, 64, 1), (2, 64, 2), (0, 5, 4), (4, 1, 0)],
)
def test_chunks_stop_at_the_tail_of_the_prompt(start: int, budget: int, tokens: int) -> None:
    configuration = attrs.evolve(tails(), hash_block=2)
    prefix = tuple("abcdefg")
    request = Request("r", prefix, 7, ("o",), {}, {})
    assert chunk_tokens(configuration, request, start, budget) == tokens


def test_a_block_wider_than_a_step_keeps_private_state() -> None:
    configuration = attrs.evolve(tails(FULL, Group(GroupKind.MAMBA, 8)), budget=3)
    replayed = run(V028, configuration, arrive("p", 10, 0), *[Step()] * 4)
    chunks = [chunk for seen in replayed.observations if seen.plan for chunk in seen.plan.chunks]
    assert [(chunk.computed, chunk.end) for chunk in chunks] == [(0, 3), (3, 6), (6, 8), (8, 10)]
    assert cached(last(replayed), "p", 1).keys() == {8, 10}
    assert not unsafe(replayed)


def test_a_reader_goes_on_in_copies() -> None:
    """Attention and recurrent state alike; the cached blocks stay as they are."""
    replayed = run(V028, tails(), arrive("p", 6, 0), Drain(), arrive("q", 6, 3), Step())
    before = (
        cached(replayed.observations[-2].after, "p", 0)[6][0],
        cached(replayed.observations[-2].after, "p", 1)[6][0],
    )
    made = [copy for copy in copies(replayed) if copy.replaces]
    assert [(copy.group, copy.source) for copy in made] == [(0, before[0]), (1, before[1])]
    assert [tables(replayed, "q")[copy.group][1] for copy in made] == [copy.destination for copy in made]
    assert not unsafe(replayed)


def test_a_producer_keeps_its_block_and_the_tail_moves() -> None:
    replayed = run(V028, tails(), long("p", 6, 4), Step(), Step(), Step())
    [moved] = copies(replayed)
    assert (moved.group, moved.replaces) == (1, False)
    held = replayed.observations[2].after.scheduler.requests["p"].tables[1]
    assert moved.source == held[1]
    assert cached(last(replayed), "p", 1)[6] == (moved.destination,)
    assert not unsafe(replayed)


def long(request: str, tokens: int, output: int) -> Arrive:
    arrival = arrive(request, tokens, 0)
    return attrs.evolve(arrival, output=(attrs.evolve(arrival.output[0], length=output),))


def test_a_full_block_keeps_the_tail_as_an_alias() -> None:
    replayed = run(V028, tails(), long("p", 6, 4), Drain())
    assert cached(last(replayed), "p", 0) == {4: (1,), 6: (3,), 8: (3,)}
    assert last(replayed).scheduler.pool.aliases == {3: (Label(0, last(replayed).texts["p"][:6]),)}
    refused = tails(release=attrs.evolve(WITHIN, outgrown_alias=OutgrownAlias.REFUSED))
    assert cached(last(run(V028, refused, long("p", 6, 4), Drain())), "p", 0) == {4: (1,), 8: (3,)}


def test_an_evicted_block_loses_all_its_labels() -> None:
    replayed = run(V028, tails(), long("p", 6, 4), Drain(), Evict(0, "p", 6))
    assert cached(last(replayed), "p", 0) == {4: (1,)}
    assert not last(replayed).scheduler.pool.aliases


def test_a_longer_load_drops_the_tail_and_a_shorter_one_does_not() -> None:
    """The tail is what lies beyond a multiple of the scheduler block, whole attention blocks too."""
    configuration = tails(Group(GroupKind.FULL_ATTENTION, 1), WIDE, connector=STORE)
    filled = (arrive("p", 7, 0), Drain())

    def admitted(tokens: int) -> tuple[int, int, int]:
        replayed = run(V028, configuration, *filled, arrive("q", 7, 3, store=tokens), Step())
        decision = replayed.observations[-1].admissions[0].decision
        return decision.asked, decision.local, decision.external

    assert [admitted(tokens) for tokens in (0, 2, 3, 4, 5)] == [(4, 7, 0), (4, 7, 0), (4, 7, 0), (4, 4, 4), (4, 4, 5)]


def test_the_lists_that_a_dropped_tail_is_cut_from_have_to_reach_the_boundary() -> None:
    lagging = (arrive("p", 6, 0), Drain(), Evict(1, "p", 6), Evict(1, "p", 4), arrive("q", 6, 3, claimer=3), Step())
    replayed = run(V028, tails(connector=CLAIMER), *lagging)
    assert not unsafe(replayed)
    [state] = tables(replayed, "q")[1][1:]
    assert tables(replayed, "q")[1] == (0, state)
    assert state not in [
        block for blocks in cached(replayed.observations[-2].after, "p", 1).values() for block in blocks
    ]
    strict = tails(connector=CLAIMER, release=attrs.evolve(WITHIN, truncation=Truncation.EVERY_GROUP_COVERS))
    refused = run(V028, strict, *lagging)
    assert "the hit list of group 1 does not reach L = 4" in last(refused).assertion
    assert [property for property in ("PROGRESS",) if found(refused, property)] == ["PROGRESS"]


def test_an_attention_list_that_does_not_reach_it_stops_the_engine() -> None:
    second = (FULL, Group(GroupKind.FULL_ATTENTION, 2), WIDE)
    lagging = (arrive("p", 6, 0), Drain(), Evict(1, "p", 2), arrive("q", 6, 3, claimer=3), Step())
    replayed = run(V028, tails(*second, connector=CLAIMER), *lagging)
    assert "the hit list of group 1 does not reach L = 4" in last(replayed).assertion
    assert not found(run(REFERENCE, tails(*second, connector=CLAIMER), *lagging), "PROGRESS")


LOADED = attrs.evolve(long("p", 7, 3), answers=(LeafAnswers("claimer", (ScriptedAnswer(5, asynchronous=True),)),))


def test_what_runs_on_in_the_block_of_its_load_counts_as_running() -> None:
    groups = (FULL, Group(GroupKind.MAMBA, 8))
    actions = (LOADED, Step(), EndLoad("p"), Step(), Step(), Step())
    assert not unsafe(run(V028, tails(*groups, connector=CLAIMER), *actions))
    unmarked = tails(*groups, connector=CLAIMER, release=attrs.evolve(WITHIN, running_mark=RunningMark.NEW_STATE_BLOCK))
    replayed = run(V028, unmarked, *actions)
    assert any("for the scheduler and block" in message for _, message in found(replayed, "OWN-EXCLUSIVE"))


@pytest.mark.parametrize("rule", list(TailCopyHold))
def test_how_long_the_copy_of_a_tail_is_held(rule: TailCopyHold) -> None:
    configuration = tails(connector=STORE, release=attrs.evolve(WITHIN, tail_copy_hold=rule))
    replayed = run(V028, configuration, long("p", 6, 4), *[Step()] * 3)
    [moved] = copies(replayed)
    held = rule is TailCopyHold.UNTIL_FREED
    assert last(replayed).scheduler.pool.refs[moved.destination] == held
    assert not unsafe(replayed)
    gone = run(V028, configuration, long("p", 6, 4), *[Step()] * 3, Abort("p"))
    assert not any(last(gone).scheduler.pool.refs)


def test_a_window_beside_partial_tails() -> None:
    window = Group(GroupKind.SLIDING_WINDOW, 1, 2)
    everywhere = run(V028, tails(FULL, WIDE, window), arrive("p", 6, 0), Drain())
    assert cached(last(everywhere), "p", 2).keys() == {1, 2, 3, 4, 5, 6}
    rarely = tails(
        FULL, WIDE, window, release=attrs.evolve(WITHIN, window_publication=WindowPublication.SCHEDULER_BLOCKS)
    )
    assert cached(last(run(V028, rarely, arrive("p", 6, 0), Drain())), "p", 2).keys() == {4}


def test_a_tail_of_this_step_is_not_hit() -> None:
    """A state that was moved is only in its copy once the step has run."""
    replayed = run(V028, tails(), long("p", 6, 4), Step(), Step(), arrive("q", 6, 1), Step())
    assert replayed.observations[-1].put_off == ("q",)
    assert not unsafe(replayed)


ESTIMATING = attrs.evolve(WITHIN, reservation=Reservation.ESTIMATED)


def test_an_estimate_counts_hits_that_nobody_holds_and_copies() -> None:
    replayed = run(V028, tails(release=ESTIMATING), arrive("p", 6, 0), Drain(), arrive("q", 6, 3), Step())
    allotments = [(each.request, each.estimated, each.allocated) for each in replayed.observations[-1].allotments]
    # Attention: two hit blocks and a copy; Mamba: the hit state and its copy. The chunk ends at 8.
    assert allotments == [("q", 5, 5)]


@pytest.mark.parametrize(("rule", "estimated"), [(Reservation.ESTIMATED, 1), (Reservation.ESTIMATED_WITH_STATE, 2)])
def test_up_to_030_a_copy_alone_is_counted_with_a_state_block(rule: Reservation, estimated: int) -> None:
    replayed = run(V028, tails(release=attrs.evolve(WITHIN, reservation=rule)), long("p", 6, 4), Step(), Step(), Step())
    allotments = [(each.estimated, each.allocated) for each in replayed.observations[-1].allotments]
    assert allotments == [(estimated, 1)]


def test_the_estimate_of_a_synchronous_load_is_short_by_one() -> None:
    """The column of R and the one in which the chunk ends: the estimate counts one of them."""
    configuration = hybrid(STORE, FULL, WIDE, budget=64)
    actions = (arrive("q", 0, 5, store=4), Step())
    assert not run(V028, configuration, *actions).violations
    replayed = run(V028, attrs.evolve(configuration, release=ESTIMATING), *actions)
    assert found(replayed, "OWN-RESERVE") == [(None, "q: 3 blocks were estimated, 4 taken")]


PUT_OFF = attrs.evolve(WITHIN, shared_tail=SharedTail.NEXT_STEP)


@pytest.mark.parametrize(
    "computed",
    [
        arrive("computes", 17, 0),
        attrs.evolve(arrive("computes", 7, 0), answers=(LeafAnswers("store", (ScriptedAnswer(5),)),)),
    ],
)
@pytest.mark.parametrize("rule", [WITHIN, Release(prompt_tail=PromptTail.BELOW_LAST_TOKEN)])
def test_the_inside_of_a_block_that_the_step_still_writes(computed: Arrive, rule: Release) -> None:
    """The state that is hit is old, the attention block is of this step: its copy would be made too early."""
    wide = (Group(GroupKind.FULL_ATTENTION, 8), Group(GroupKind.MAMBA, 8))
    configuration = attrs.evolve(tails(*wide, connector=STORE), hash_block=4)
    actions = (
        long("fill", 5, 2),
        Drain(),
        Evict(0, "fill", 4),
        computed,
        arrive("copies", 6 if computed.answers else 12, 2),
    )
    replayed = run(REFERENCE, attrs.evolve(configuration, release=rule), *actions, Step())
    assert [
        message for _, message in found(replayed, "STATE-VISIBLE") if "which is written later in the step" in message
    ]
    assert found(replayed, "HIT-COVER")
    repaired = run(REFERENCE, attrs.evolve(configuration, release=PUT_OFF), *actions, Step(), Drain())
    assert any("copies" in seen.put_off for seen in repaired.observations)
    assert not unsafe(repaired)
