"""Leaves that keep objects: what they answer, load, save and lose; each rule that stores once had is seen to fail."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.actions import (
    Action,
    Arrive,
    Drain,
    EndLoad,
    EndSaves,
    Evict,
    EvictObject,
    Execute,
    LeafAnswers,
    Reset,
    Schedule,
    ScriptedAnswer,
    Step,
)
from model.configuration import Configuration, Group, GroupKind
from model.connector import Composite, Conduct, Contract, Leaf, StateRestored
from model.errors import ConfigurationError, IllegalAction
from model.memory import AttentionKV, RecurrentState
from model.policies import POLICIES
from model.pool import Label
from model.saving import referenced
from model.store import Store, found
from model.store_rules import (
    Agreement,
    AtReset,
    Guard,
    LastToken,
    LoadPins,
    Match,
    MissingObject,
    NullBlocks,
    OutputStates,
    StateSource,
    StoreRules,
)
from model.tokens import Prefix, Segment, tokens_of
from properties.features import Feature
from properties.fuzz import PROFILES, fuzz
from properties.judge import events, violations
from properties.replay import Replay
from properties.requirements import is_required
from properties.verdict import Verdict
from solver.scope import Scope, ScopeError
from tests.small_runs import ATTENTION, CLAIMER, FILLED, MAMBA, V028, arrive, hybrid, run

LOCAL_LOST = tuple(Evict(group, "fill", boundary) for group in (0, 1) for boundary in (2, 4))
"""Nothing of `fill` is left in the pool."""
GOES_ON = arrive("r", 4, 2)


def store(name: str = "store", *, asynchronous: bool = False, **rules: object) -> Leaf:
    kept = StoreRules(asynchronous, **rules)  # type: ignore[arg-type]
    return Leaf(name, claims=False, contract=Contract.ENDPOINT, store=kept)


def lost(*objects: tuple[int, int]) -> tuple[Action, ...]:
    return tuple(EvictObject("store", group, "fill", boundary) for group, boundary in objects)


def admitted(leaf: Leaf, *actions: Action) -> tuple[int, int]:
    """L and E of the request that was admitted last."""
    last = run(V028, hybrid(leaf), *actions).admissions[-1]
    return last.local, last.external


def judged(leaf: Leaf, *actions: Action) -> set[str]:
    return {violation.property for violation in run(V028, hybrid(leaf), *actions).violations}


def test_what_a_request_computes_is_stored_with_its_content() -> None:
    (*_, last) = run(V028, hybrid(store()), *FILLED).observations
    prefix = tokens_of((Segment("x", 4),))
    assert last.after.worker.objects == {
        ("store", Label(0, prefix[:2])): (AttentionKV(0, 0, prefix[:2]),),
        ("store", Label(0, prefix)): (AttentionKV(0, 2, prefix),),
        ("store", Label(1, prefix[:2])): (RecurrentState(1, prefix[:2]),),
        ("store", Label(1, prefix)): (RecurrentState(1, prefix),),
    }
    assert {label for _, label in last.after.worker.objects} == last.after.scheduler.stores["store"].keys


def test_what_is_lost_in_the_pool_comes_back_from_the_store() -> None:
    for asynchronous in (False, True):
        ending = (Step(), EndLoad("r"), Drain()) if asynchronous else (Drain(),)
        replayed = run(V028, hybrid(store(asynchronous=asynchronous)), *FILLED, *LOCAL_LOST, GOES_ON, *ending)
        assert replayed.violations == ()
        assert (replayed.admissions[-1].local, replayed.admissions[-1].external) == (0, 4)


def test_a_hit_is_where_every_group_has_its_object() -> None:
    """Report 6: attention without its last object, states without the first, leave nothing in common."""
    assert admitted(store(), *FILLED, *LOCAL_LOST, *lost((0, 4), (1, 2)), GOES_ON, Step()) == (0, 0)
    assert admitted(store(), *FILLED, *LOCAL_LOST, *lost((1, 4)), GOES_ON, Step()) == (0, 2)
    assert admitted(store(), *FILLED, *LOCAL_LOST, *lost((0, 2)), GOES_ON, Step()) == (0, 0)


def test_a_window_needs_only_what_it_sees() -> None:
    windowed = Configuration((ATTENTION, Group(GroupKind.SLIDING_WINDOW, 2, 3)), pool_blocks=9, budget=9)
    prefix = tokens_of((Segment("x", 9),))
    attention = frozenset(Label(0, prefix[:end]) for end in (2, 4, 6, 8))
    assert found(windowed, StoreRules(), Store(attention | {Label(1, prefix[:6])}), prefix, 0) == 6
    assert found(windowed, StoreRules(), Store(attention | {Label(1, prefix[:4])}), prefix, 4) == 4


def test_the_last_token_is_never_loaded() -> None:
    assert admitted(store(), *FILLED, *LOCAL_LOST, arrive("r", 4, 0), Step()) == (0, 2)


@pytest.mark.parametrize(
    ("rules", "gone", "external", "violated"),
    [
        ({"match": Match.LEAST_OF_GREATEST}, ((0, 4), (1, 2)), 2, {"HIT-MEMBER"}),
        ({"match": Match.CONSECUTIVE}, ((1, 4),), 0, {"REACH"}),
        ({"match": Match.ATTENTION_ONLY}, ((1, 4),), 4, {"HIT-MEMBER", "HIT-RESUME", "STATE-LABEL"}),
    ],
)
def test_each_faulty_match_is_noticed(
    rules: dict[str, Match], gone: tuple[tuple[int, int], ...], external: int, violated: set[str]
) -> None:
    actions = (*FILLED, *LOCAL_LOST, *lost(*gone), GOES_ON, Step())
    assert judged(store(), *actions) == set()
    assert admitted(store(**rules), *actions) == (0, external)
    assert judged(store(**rules), *actions) == violated


def test_attention_that_is_cut_to_a_state_has_no_object_of_its_own() -> None:
    """Report 7 with blocks of 4 and 2 tokens: attention has {4, 8}, Mamba {4, 6}."""
    groups = (Group(GroupKind.FULL_ATTENTION, 4), MAMBA)
    filled = (arrive("fill", 8, 0), Drain())
    gone = tuple(Evict(group, "fill", boundary) for group, boundary in ((0, 4), (0, 8), (1, 4), (1, 8)))
    actions = (*filled, *gone, *lost((1, 8)), arrive("r", 8, 1), Step())
    sound, faulty = (
        run(V028, hybrid(store(match=match), *groups), *actions)
        for match in (Match.INTERSECTION, Match.TRUNCATED_ATTENTION)
    )
    assert (sound.admissions[-1].external, sound.violations) == (4, ())
    assert faulty.admissions[-1].external == 6
    assert {violation.property for violation in faulty.violations} == {"HIT-MEMBER"}


def test_the_block_around_a_boundary_does_not_hold_its_state() -> None:
    """Attention of 2 tokens a block loses what follows 6; the Mamba block of 4 tokens around 6 holds state@8."""
    groups = (ATTENTION, Group(GroupKind.MAMBA, 4))
    filled = (arrive("fill", 8, 4), Drain(), *(Evict(0, "fill", end) for end in (2, 4, 6, 8, 10, 12)))
    actions = (*filled, *(Evict(1, "fill", end) for end in (4, 8, 12)), *lost((0, 8)), arrive("r", 8, 4), Step())
    around = run(V028, hybrid(store(match=Match.BLOCK_AROUND), *groups, budget=4), *actions)
    assert around.admissions[-1].external == 6
    assert {violation.property for violation in around.violations} == {"HIT-RESUME", "HIT-MEMBER", "GEO-INTERVAL"}
    assert "r: R = 6 = L 0 + E 6; Mamba group 1 needs state@6 and reads block" in around.violations[0].message
    joint = run(V028, hybrid(store(), *groups, budget=4), *actions)
    assert (joint.admissions[-1].external, joint.violations) == (4, ())


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_count_that_is_taken_off_does_not_take_off_the_state(asynchronous: bool) -> None:
    """Reports 26 and 28."""
    ending = (Step(), EndLoad("r"), Step()) if asynchronous else (Step(),)
    actions = (*FILLED, *LOCAL_LOST, arrive("r", 4, 0), *ending)
    leaf = store(asynchronous=asynchronous, last_token=LastToken.COUNTED_OFF)
    assert admitted(leaf, *actions) == (0, 3)
    assert {"HIT-LAST", "HIT-RESUME"} <= judged(leaf, *actions)
    all_of_it = store(asynchronous=asynchronous, last_token=LastToken.INCLUDED)
    assert admitted(all_of_it, *actions[: -len(ending)], Step()) == (0, 4)
    assert "HIT-LAST" in judged(all_of_it, *actions[: -len(ending)], Step())


def test_a_store_without_states_has_nothing_for_a_hybrid_model() -> None:
    """Report 36."""
    actions = (*FILLED, *LOCAL_LOST, GOES_ON, Step())
    assert admitted(store(state_source=StateSource.NOT_KEPT), *actions) == (0, 0)
    assert judged(store(state_source=StateSource.NOT_KEPT), *actions) == set()
    answers_anyway = store(state_source=StateSource.NOT_KEPT, match=Match.ATTENTION_ONLY)
    assert admitted(answers_anyway, *actions) == (0, 4)
    assert "HIT-RESUME" in judged(answers_anyway, *actions)


def test_states_beyond_the_prompt_are_stored_as_attention_is() -> None:
    """Report 74."""
    talks = (Arrive("a", (Segment("x", 3),), (Segment("o", 4),)), Drain())
    assert judged(store(), *talks) == set()
    assert judged(store(output_states=OutputStates.DROPPED), *talks) == {"REACH"}


def test_every_leaf_saves_though_only_one_loads() -> None:
    observed = run(V028, hybrid(Composite((CLAIMER, store()))), arrive("r", 4, 0, claimer=2), Step()).observations
    assert {label.group for _, label in observed[-1].after.worker.objects} == {0, 1}
    assert "LOSER-SAVES" in events(observed[-1])


def test_what_a_failed_load_left_is_not_stored() -> None:
    tree = Composite((CLAIMER, store()))
    (*_, last) = run(V028, hybrid(tree), arrive("r", 4, 0, claimer=2), Step(failed_loads=("r",))).observations
    assert last.plan is not None
    assert last.plan.saves
    assert last.after.worker.objects == {}


def test_a_load_whose_object_is_gone_fails() -> None:
    begun = (*FILLED, *LOCAL_LOST, GOES_ON, Step(), *lost((1, 4)))
    leaf = store(asynchronous=True, load_pins=LoadPins.NEVER)
    assert judged(leaf, *begun, EndLoad("r", succeeded=False), Drain()) == {"LOAD-PIN"}
    with pytest.raises(IllegalAction, match="an object that it fetches is gone"):
        run(V028, hybrid(leaf), *begun, EndLoad("r"))


def test_the_objects_of_a_load_stay_until_it_ends() -> None:
    """Report 17."""
    begun = (*FILLED, *LOCAL_LOST, GOES_ON, Step(), *lost((1, 4)), EndLoad("r"))
    asserts = {"asynchronous": True, "missing_object": MissingObject.ENGINE_ASSERTS}
    pinned = run(V028, hybrid(store(**asserts)), *begun, Drain(), *lost((1, 4)))
    assert pinned.violations == ()
    assert Label(1, tokens_of((Segment("x", 4),))) not in pinned.observations[-1].after.scheduler.stores["store"].keys
    loose = run(V028, hybrid(store(load_pins=LoadPins.NEVER, **asserts)), *begun)
    assert loose.observations[-1].after.assertion == "store promised [0, 4) to r, and objects are gone"
    assert [violation.property for violation in loose.violations] == ["LOAD-PIN"]


def test_an_answer_that_is_not_used_keeps_nothing() -> None:
    """A store that pins when it answers, beside a leaf that does not know yet: until the next question it pins."""
    unsure = Leaf("unsure", claims=False, contract=Contract.ENDPOINT)
    waits = attrs.evolve(GOES_ON, answers=(LeafAnswers("unsure", (ScriptedAnswer(None), ScriptedAnswer(0))),))
    actions = (*FILLED, *LOCAL_LOST, waits, Step(), *lost((1, 4)), Step())
    sound = run(V028, hybrid(Composite((store(), unsure))), *actions)
    assert (sound.violations, sound.admissions[-1].external) == ((), 2)
    pins = run(V028, hybrid(Composite((store(load_pins=LoadPins.FROM_ANSWER), unsure))), *actions)
    assert {violation.property for violation in pins.violations} == {"ASK-PURE", "LOAD-PIN"}
    assert "r: store keeps 3 objects although the answer is not used" in {each.message for each in pins.violations}
    assert pins.admissions[-1].external == 4


WIDE_FILLED = (arrive("fill", 8, 0), Drain())
"""Four blocks of each group, two objects of two blocks."""
WIDE_LOST = tuple(Evict(group, "fill", boundary) for group in (0, 1) for boundary in (4, 6, 8))
"""The first block of each group is left."""


def test_an_object_of_several_blocks_is_saved_once_all_are_full() -> None:
    (_, early, *_, last) = run(V028, hybrid(store(object_blocks=2)), *WIDE_FILLED[:1], Step(), Drain()).observations
    assert early.after.worker.objects == {}
    prefix = tokens_of((Segment("x", 8),))
    assert last.after.worker.objects == {
        ("store", Label(0, prefix[:4])): (AttentionKV(0, 0, prefix[:2]), AttentionKV(0, 2, prefix[:4])),
        ("store", Label(0, prefix)): (AttentionKV(0, 4, prefix[:6]), AttentionKV(0, 6, prefix)),
        ("store", Label(1, prefix[:4])): (RecurrentState(1, prefix[:4]),),
        ("store", Label(1, prefix)): (RecurrentState(1, prefix),),
    }


def test_hits_end_where_objects_end_and_may_begin_inside_one() -> None:
    wide = store(object_blocks=2)
    for shared, external in ((8, 6), (7, 0)):
        actions = (*WIDE_FILLED, *WIDE_LOST, arrive("r", shared, 3), Drain())
        replayed = run(V028, hybrid(wide), *actions)
        assert replayed.violations == ()
        assert (replayed.admissions[-1].local, replayed.admissions[-1].external) == (2, external)
    # From 2 to 4 would be less than an object.
    first_lost = (EvictObject("store", 0, "fill", 8), EvictObject("store", 1, "fill", 8))
    assert admitted(wide, *WIDE_FILLED, *WIDE_LOST, *first_lost, arrive("r", 8, 3), Step()) == (2, 0)


def resaved(**rules: object) -> Replay:
    """A store has lost its objects of `a`; `b` begins at a local hit, of which its window has the last two blocks."""
    windowed = hybrid(store(object_blocks=2, **rules), ATTENTION, Group(GroupKind.SLIDING_WINDOW, 2, 4))
    gone = tuple(EvictObject("store", group, "a", boundary) for group in (0, 1) for boundary in (4, 8))
    fills = (arrive("a", 8, 0), Drain(), *gone, Evict(0, "a", 8), Evict(1, "a", 8), arrive("b", 8, 1), Drain())
    local_lost = tuple(Evict(group, "a", 2) for group in (0, 1))
    return run(V028, windowed, *fills, *local_lost, arrive("c", 4, 2), Drain())


def test_an_object_that_lacks_what_its_window_sees_is_not_saved() -> None:
    sound = resaved()
    assert sound.violations == ()
    assert [(each.local, each.external) for each in sound.admissions] == [(0, 0), (6, 0), (0, 0)]
    partly = resaved(null_blocks=NullBlocks.LAST_DECIDES)
    assert [(each.local, each.external) for each in partly.admissions] == [(0, 0), (6, 0), (0, 4)]
    assert {violation.property for violation in partly.violations} >= {"STATE-LABEL", "HIT-COVER"}


def test_counting_what_is_not_listed_stops_the_engine() -> None:
    """Report 49."""
    counted = resaved(null_blocks=NullBlocks.COUNTED)
    assert "b: store counts 2 blocks of sliding-window group 1 for the object of 4 tokens, and lists 1" in [
        violation.message for violation in counted.violations if violation.property == "GEO-INTERVAL"
    ]
    assert "2 blocks are counted for a save, and 1 listed" in counted.observations[-1].after.assertion


def test_objects_hold_a_block_at_least() -> None:
    with pytest.raises(ConfigurationError, match="use 1 or more"):
        StoreRules(object_blocks=0)


def recycled(leaf: Leaf) -> Replay:
    """The window of `a` moves on, and `b` takes the blocks that it left behind, while `leaf` has still to save them."""
    windowed = attrs.evolve(hybrid(leaf, ATTENTION, Group(GroupKind.SLIDING_WINDOW, 2, 3)), pool_blocks=11)
    takes = Arrive("b", (Segment("y", 5),), (Segment("b-out", 1),))
    return run(V028, windowed, arrive("a", 8, 1), *(Step(),) * 4, takes, Step(), EndSaves("store"), Drain())


@pytest.mark.parametrize("guard", [Guard.REFERENCE, Guard.FENCE, Guard.OWNED])
def test_a_pending_save_never_reads_what_others_wrote(guard: Guard) -> None:
    """Report 47: with a window, whose blocks are given back while the request runs on."""
    sound = recycled(store(delayed=True, guard=guard))
    assert sound.violations == ()
    keys = sound.observations[-1].after.scheduler.stores["store"].keys
    assert (Label(1, sound.observations[-1].after.texts["a"][:2]) in keys) is (guard is not Guard.OWNED)


def test_without_a_guard_a_pending_save_stores_what_others_wrote() -> None:
    told = recycled(store(delayed=True, guard=Guard.NOTHING)).violations
    assert {violation.property for violation in told} == {"STORE-FENCE", "STATE-LABEL"}
    assert "block 2 changes hands while store has still to save it for 2 tokens of a in sliding-window group 1" in [
        violation.message for violation in told
    ]


def test_a_state_is_not_saved_from_the_column_where_it_was() -> None:
    """Report 22."""
    by_column = {"delayed": True, "state_source": StateSource.BY_COLUMN, "guard": Guard.NOTHING}
    actions = (arrive("a", 8, 1), *(Step(),) * 4, EndSaves("store"), Drain())
    small = attrs.evolve(hybrid(store(**by_column)), pool_blocks=8)
    told = {violation.message for violation in run(V028, small, *actions).violations}
    assert (
        "store stores block 2 of a for 2 tokens of Mamba group 1, so it has to hold state@2; "
        "it holds state@8 of group 1" in told
    )
    assert run(V028, attrs.evolve(hybrid(store(delayed=True)), pool_blocks=8), *actions).violations == ()


def test_a_null_block_is_no_object() -> None:
    """Report 64: one chunk of four blocks writes one state."""
    in_one_chunk = (arrive("a", 8, 1), Drain(), *(Evict(0, "a", end) for end in (2, 4, 6, 8)), Evict(1, "a", 8))
    replay = (*in_one_chunk, arrive("r", 4, 2), Step())
    for null_blocks, external, violated in (
        (NullBlocks.SKIPPED, 0, set()),
        (NullBlocks.STORED, 4, {"STATE-LABEL", "HIT-RESUME"}),
    ):
        leaf = store(state_source=StateSource.BY_COLUMN, null_blocks=null_blocks)
        replayed = run(V028, hybrid(leaf, budget=8), *replay)
        assert (replayed.admissions[-1].external, {each.property for each in replayed.violations}) == (
            external,
            violated,
        )


def test_a_fence_sees_the_blocks_that_another_leaf_loads_into() -> None:
    """Report 43."""
    remote = Leaf("remote", claims=False, contract=Contract.ENDPOINT)
    said = (LeafAnswers("remote", (ScriptedAnswer(4, asynchronous=True),)),)
    takes = Arrive("b", (Segment("y", 4), Segment("b", 1)), (Segment("b-out", 1),), said)
    actions = (arrive("a", 4, 0), Drain(), takes, Step(), EndLoad("b"), EndSaves("store"), Drain())

    def violated(guard: Guard) -> set[str]:
        tree = Composite((remote, store(delayed=True, guard=guard)))
        small = attrs.evolve(hybrid(tree, budget=8), pool_blocks=6)
        return {violation.property for violation in run(V028, small, *actions).violations}

    assert violated(Guard.FENCE) == set()
    assert violated(Guard.FENCE_OWN_LOADS) == {"STORE-FENCE", "STATE-LABEL"}


def test_a_save_is_done_before_a_load_into_its_block_that_ends_early() -> None:
    """The load has ended before the step that announced it; the worker saves what is pending when it gets that step."""
    remote = Leaf("remote", claims=False, contract=Contract.ENDPOINT)
    said = (LeafAnswers("remote", (ScriptedAnswer(8, asynchronous=True),)),)
    takes = Arrive("b", (Segment("y", 9),), (Segment("b-out", 1),), said)
    actions = (arrive("a", 4, 0), Drain(), takes, Schedule(), EndLoad("b"), Execute(), EndSaves("store"), Drain())

    def replayed(guard: Guard) -> Replay:
        tree = Composite((remote, store(delayed=True, guard=guard)))
        return run(V028, attrs.evolve(hybrid(tree, budget=8), pool_blocks=9, steps_in_flight=2), *actions)

    sound = replayed(Guard.FENCE)
    assert sound.violations == ()
    assert [len(seen.flushed) for seen in sound.observations if isinstance(seen.action, EndLoad)] == [1]
    assert {violation.property for violation in replayed(Guard.FENCE_OWN_LOADS).violations} == {"STATE-LABEL"}


def test_a_referenced_source_is_given_back() -> None:
    (*_, pending) = run(V028, hybrid(store(delayed=True)), arrive("a", 4, 0), Drain()).observations
    sources = referenced(pending.after.scheduler)
    assert sources
    assert all(pending.after.scheduler.pool.refs[block] == 1 for block in sources)
    (*_, ended) = run(V028, hybrid(store(delayed=True)), arrive("a", 4, 0), Drain(), EndSaves("store")).observations
    assert not any(ended.after.scheduler.pool.refs)
    pool = pending.after.scheduler.pool
    leaked = attrs.evolve(pool, refs=tuple(refs + (block == sources[0]) for block, refs in enumerate(pool.refs)))
    broken = attrs.evolve(pending.after, scheduler=attrs.evolve(pending.after.scheduler, pool=leaked))
    assert "OWN-LEAK" in {each.property for each in violations(attrs.evolve(pending, after=broken))}


def test_saves_cannot_end_where_there_are_none() -> None:
    with pytest.raises(IllegalAction, match="keeps no objects"):
        run(V028, hybrid(CLAIMER), EndSaves("claimer"))


def test_a_reset_reaches_the_stores() -> None:
    (*_, last) = run(V028, hybrid(store()), *FILLED, Reset()).observations
    assert last.after.worker.objects == {}
    for pending in (False, True):
        waiting = (*FILLED, *LOCAL_LOST) if not pending else (arrive("fill", 4, 0), Drain())
        leaf = store(at_reset=AtReset.KEPT, delayed=pending, guard=Guard.FENCE)
        assert judged(leaf, *waiting, Reset()) == {"STATE-VISIBLE"}
        assert judged(store(delayed=pending, guard=Guard.FENCE), *waiting, Reset()) == set()


def test_an_answer_is_what_every_rank_has() -> None:
    lost_on_the_other_rank = attrs.evolve(lost((1, 4))[0], rank=1)  # type: ignore[misc]
    actions = (*FILLED, *LOCAL_LOST, lost_on_the_other_rank, GOES_ON, Step())
    assert admitted(store(), *actions) == (0, 2)
    assert judged(store(), *actions) == set()
    assert admitted(store(agreement=Agreement.FIRST_RANK), *actions) == (0, 4)
    assert judged(store(agreement=Agreement.FIRST_RANK), *actions) == {"HIT-MEMBER"}


def test_an_object_that_is_not_what_its_key_says_is_reported() -> None:
    (*_, last) = run(V028, hybrid(store()), arrive("a", 4, 0), Step()).observations
    key = next(key for key in last.after.worker.objects if key[1].group == 1)
    wrong = {**last.after.worker.objects, key: (RecurrentState(1, key[1].prefix[:1]),)}
    broken = attrs.evolve(last, after=attrs.evolve(last.after, worker=attrs.evolve(last.after.worker, objects=wrong)))
    assert [violation.property for violation in violations(broken)] == ["STATE-LABEL"]


def test_a_store_takes_neither_a_script_nor_a_conduct() -> None:
    scripted = attrs.evolve(GOES_ON, answers=(LeafAnswers("store", (ScriptedAnswer(2),)),))
    with pytest.raises(IllegalAction, match="leaves with a script"):
        run(V028, hybrid(store()), scripted)
    with pytest.raises(ConfigurationError, match="leave its conduct out"):
        Leaf("s", False, Contract.ENDPOINT, Conduct(StateRestored.NEVER), StoreRules())


def test_a_store_is_honest_if_its_rules_back_the_contract() -> None:
    assert store().honest
    assert store(match=Match.CONSECUTIVE).honest
    assert not store(match=Match.LEAST_OF_GREATEST).honest
    assert not store(last_token=LastToken.INCLUDED).honest
    assert not store(state_source=StateSource.BY_COLUMN).honest
    assert not store(load_pins=LoadPins.NEVER).honest
    assert not store(load_pins=LoadPins.FROM_ANSWER).honest
    assert not store(agreement=Agreement.FIRST_RANK).honest
    assert not store(at_reset=AtReset.KEPT).honest
    assert store(guard=Guard.NOTHING).honest
    assert not store(delayed=True, guard=Guard.NOTHING).honest
    assert not Leaf("all", claims=False, contract=Contract.FULL, store=StoreRules()).honest


def test_a_search_refuses_stores() -> None:
    with pytest.raises(ScopeError, match="keeps objects"):
        Scope("stores", hybrid(store()), (arrive("a", 2, 0),))


GROUPS = st.sampled_from([(ATTENTION, MAMBA), (ATTENTION, MAMBA, MAMBA), (Group(GroupKind.FULL_ATTENTION, 4), MAMBA)])


@given(GROUPS, st.integers(1, 14), st.data())
def test_an_answer_is_the_greatest_member_of_every_groups_own_set(
    groups: tuple[Group, ...], N: int, data: st.DataObject
) -> None:
    """By enumeration: each group's own boundaries, and the greatest that they share."""
    configuration = Configuration(groups, pool_blocks=9, budget=9)
    prefix: Prefix = tokens_of((Segment("x", N),))
    every = [
        Label(index, prefix[:end])
        for index, group in enumerate(groups)
        for end in range(group.block, N + 1, group.block)
    ]
    keys = frozenset(data.draw(st.sets(st.sampled_from(every))) if every else ())

    def has(index: int, boundary: int) -> bool:
        block = groups[index].block
        ends = [boundary] if groups[index].recurrent else range(block, boundary + 1, block)
        return all(Label(index, prefix[:end]) in keys for end in ends)

    shared = [
        boundary
        for boundary in range(0, N, configuration.scheduler_block)
        if boundary == 0 or all(has(index, boundary) for index in range(len(groups)))
    ]
    assert found(configuration, StoreRules(), Store(keys), prefix, 0) == max(shared)


@pytest.mark.slow
def test_sound_stores_keep_the_contract_under_every_policy_that_is_safe() -> None:
    for name in ("vllm-0.28", "reference"):
        results = fuzz(POLICIES[name], attrs.evolve(PROFILES["quick"], runs=40), features=frozenset({Feature.STORES}))
        violated = {result.property for result in results if result.verdict is Verdict.VIOLATED}
        assert not [property for property in violated if is_required(property)]
