"""What changes L or E after a connector has answered, end to end.

The decisions are those of the scheduler of vLLM 0.33.0 on the same traces (with its own `AuxOutputSchedulerConnector`,
and with `prefix_replay_tokens` set).
"""

from __future__ import annotations

import attrs
import pytest

from model.actions import Action, Arrive, Drain, EndLoad, LeafAnswers, Reset, ScriptedAnswer, Step
from model.configuration import Configuration, Group, GroupKind
from model.connector import Contract, Leaf
from model.errors import ConfigurationError, UnsupportedConfiguration
from model.policies import POLICIES
from model.release import NEWEST, RELEASES
from model.tokens import Segment
from model.trace import Trace
from properties.replay import Replay, replay
from solver.scope import Scope, ScopeError

FULL = Group(GroupKind.FULL_ATTENTION, 16)
WIDER = Group(GroupKind.FULL_ATTENTION, 32)
MAMBA = Group(GroupKind.MAMBA, 48)
STORE = Leaf("store", claims=False, contract=Contract.ENDPOINT)


def arrive(name: str, *prompt: Segment, tokens: int | None = 0, later: bool = False, skips: bool = False) -> Arrive:
    said = LeafAnswers("store", (ScriptedAnswer(tokens, later), ScriptedAnswer(0)))
    return Arrive(name, prompt, (Segment(f"{name}-out", 1),), (said,), skips)


def run(configuration: Configuration, *actions: Action, policy: str = "vllm-0.28") -> Replay:
    return replay(Trace("", configuration, actions), POLICIES[policy])


def last_admission(seen: Replay) -> tuple[int, int]:
    decision = next(decision for each in reversed(seen.observations) for decision in each.decisions)
    return decision.local, decision.external


def chunks(seen: Replay) -> list[tuple[int, int, int]]:
    return [
        (chunk.computed, chunk.count, chunk.rerun)
        for each in seen.observations
        if each.plan is not None
        for chunk in each.plan.chunks
    ]


TAIL = Configuration((FULL, MAMBA), pool_blocks=60, budget=512, connector=STORE, retention=0)
SHARED = Segment("x", 81)
LONGER = (Segment("x", 80), Segment("y", 60))


def test_a_load_without_its_outputs_is_given_up_after_the_tail_was_dropped_for_it() -> None:
    actions = (arrive("first", SHARED), Drain(), arrive("second", *LONGER, tokens=64), Step())
    plain = run(TAIL, *actions)
    assert last_admission(plain) == (48, 64)
    assert plain.violations == ()
    capped = run(attrs.evolve(TAIL, auxiliary_outputs=True), *actions)
    assert last_admission(capped) == (48, 0)
    assert {violation.property for violation in capped.violations} == {"HIT-RESUME"}
    looked_up_again = run(attrs.evolve(TAIL, auxiliary_outputs=True), *actions, policy="reference")
    assert last_admission(looked_up_again) == (80, 0)
    assert looked_up_again.violations == ()


def test_outputs_of_a_request_that_has_ended_are_kept_until_the_reset() -> None:
    configuration = Configuration((FULL,), pool_blocks=12, budget=512, connector=STORE, auxiliary_outputs=True)
    whole = (arrive("first", SHARED), Drain(), arrive("other", Segment("z", 165)), Drain())
    again = (arrive("again", Segment("x", 81), tokens=64), Step())
    seen = run(configuration, *whole, *again)
    assert last_admission(seen) == (0, 64)
    assert last_admission(run(configuration, *whole, Reset(), *again)) == (0, 0)
    never_seen = run(configuration, arrive("again", Segment("x", 81), tokens=64), Step())
    assert last_admission(never_seen) == (0, 0)


def test_a_request_that_does_not_read_takes_nothing_and_does_not_wait_for_an_answer() -> None:
    shared = (arrive("first", SHARED), Drain())
    for tokens in (64, None):
        seen = run(TAIL, *shared, arrive("second", *LONGER, tokens=tokens, skips=True), Step())
        assert last_admission(seen) == (0, 0)
        assert seen.violations == ()


def test_up_to_030_such_a_request_takes_what_the_connector_has() -> None:
    earlier = attrs.evolve(TAIL, release=RELEASES["0.30"])
    seen = run(earlier, arrive("first", SHARED), Drain(), arrive("second", *LONGER, tokens=48, skips=True), Step())
    assert last_admission(seen) == (0, 48)


REPLAYED = Configuration((FULL, WIDER), pool_blocks=60, budget=512, connector=STORE, replay_window=20)


def test_the_end_of_a_hit_is_run_again_and_not_written_again() -> None:
    seen = run(REPLAYED, arrive("first", SHARED), Drain(), arrive("second", *LONGER), Drain())
    assert last_admission(seen) == (64, 0)
    assert chunks(seen) == [(0, 81, 0), (44, 96, 20)]
    assert seen.violations == ()
    again = seen.observations[-2].plan
    assert again is not None
    assert all(len(table) == columns for table, columns in zip(again.chunks[0].new_blocks, (9, 5), strict=True))


def test_a_hit_that_is_no_longer_than_the_window_is_none() -> None:
    short = attrs.evolve(REPLAYED, replay_window=64)
    seen = run(short, arrive("first", SHARED), Drain(), arrive("second", *LONGER), Step())
    assert last_admission(seen) == (0, 0)


def test_a_load_is_cut_to_whole_blocks_against_what_was_promised() -> None:
    seen = run(REPLAYED, arrive("first", Segment("x", 140), tokens=100), Step())
    assert last_admission(seen) == (0, 96)
    assert chunks(seen) == [(76, 64, 20)]
    assert {violation.property for violation in seen.violations} == {"LOAD-EXACT"}


def test_a_load_that_ends_later_is_run_again_from_its_end() -> None:
    seen = run(REPLAYED, arrive("first", Segment("x", 140), tokens=96, later=True), Step(), EndLoad("first"), Step())
    assert chunks(seen) == [(76, 64, 20)]
    assert seen.violations == ()


def test_a_small_budget_splits_what_is_run_again() -> None:
    seen = run(REPLAYED, arrive("first", SHARED), Drain(), arrive("second", *LONGER), Step(budget=12), Step(budget=12))
    assert chunks(seen)[1:] == [(44, 12, 12), (56, 12, 8)]
    assert seen.violations == ()


def test_what_cannot_be_run_again_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="0 or more"):
        attrs.evolve(REPLAYED, replay_window=-1)
    with pytest.raises(UnsupportedConfiguration, match="recurrent states or windows"):
        attrs.evolve(TAIL, replay_window=4)


@pytest.mark.parametrize("switch", [{"replay_window": 4}, {"auxiliary_outputs": True}])
def test_a_search_refuses_them(switch: dict[str, bool | int]) -> None:
    configuration = attrs.evolve(REPLAYED, replay_window=0, release=NEWEST)
    with pytest.raises(ScopeError, match="replay and auxiliary outputs"):
        Scope("s", attrs.evolve(configuration, **switch), (arrive("r", Segment("x", 8)),))  # type: ignore[arg-type]
