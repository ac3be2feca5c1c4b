"""Invariants that no policy can break: the engine is broken by hand, and each check is seen to fail."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from model import chunk, step, system
from model.actions import Action, Arrive, EndLoad, LeafAnswers, Reset, ScriptedAnswer, Step
from model.allocation import publish
from model.chunk import chunk_tokens
from model.configuration import Configuration
from model.memory import UNWRITTEN
from model.plan import Copy
from model.pool import Label, Pool
from model.recovery import Recovered
from model.request import Request, Status
from model.system import Observation
from model.tokens import Segment
from properties.invariant import Violation
from properties.judge import violations
from properties.verdict import Case
from tests.small_runs import FILLED, STORE, V028, arrive, found, hybrid, run


def last_step(*actions: Action) -> Observation:
    """What the last action of a sound run shows; nothing is violated up to there."""
    replayed = run(V028, hybrid(STORE), *actions)
    assert replayed.violations == ()
    return replayed.observations[-1]


def judged(observation: Observation) -> set[str]:
    return {violation.property for violation in violations(observation)}


def with_pool(observation: Observation, **changes: object) -> Observation:
    pool = attrs.evolve(observation.after.scheduler.pool, **changes)  # type: ignore[arg-type]
    return with_scheduler(observation, pool=pool)


def with_scheduler(observation: Observation, **changes: object) -> Observation:
    changed = attrs.evolve(observation.after.scheduler, **changes)  # type: ignore[arg-type]
    return attrs.evolve(observation, after=attrs.evolve(observation.after, scheduler=changed))


def with_request(observation: Observation, name: str, change: Callable[[Request], Request]) -> Observation:
    requests = observation.after.scheduler.requests
    return with_scheduler(observation, requests={**requests, name: change(requests[name])})


RUNNING = (*FILLED, arrive("r", 4, 4, store=0), Step())
"""r runs from R = 4; its blocks are 1, 3 and 5 (attention), null, 4 and 6 (Mamba)."""


def test_wrong_content_under_a_label_is_reported_once() -> None:
    observation = last_step(*RUNNING)
    worker = observation.after.worker
    spoilt = attrs.evolve(worker, memory=worker.memory.write(4, UNWRITTEN))
    broken = attrs.evolve(observation, after=attrs.evolve(observation.after, worker=spoilt))
    assert judged(broken) == {"STATE-LABEL"}
    assert judged(attrs.evolve(broken, before=broken.after)) == set()


def test_a_state_that_is_hit_in_the_step_that_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets_states(
        configuration: Configuration, pool: Pool, request: Request, tokens: int
    ) -> tuple[Pool, Request, frozenset[Label]]:
        pool, request, _ = publish(configuration, pool, request, tokens)
        return pool, request, frozenset()

    actions = (arrive("a", 4, 1), arrive("b", 4, 2), Step())
    assert run(V028, hybrid(budget=8), *actions).violations == ()
    monkeypatch.setattr(step, "publish", forgets_states)
    told = found(run(V028, hybrid(budget=8), *actions), "STATE-VISIBLE")
    assert told == [
        (
            Case.LOCAL,
            "b: R = 4 = L 4 + E 0; Mamba group 1 needs state@4 and reads block 3 (column 1), "
            "which held garbage (unwritten); it is written later in the same step",
        )
    ]


def test_a_reset_leaves_nothing_cached() -> None:
    observation = last_step(*FILLED)
    assert "STATE-VISIBLE" in judged(attrs.evolve(observation, action=Reset()))


def test_blocks_serve_one_purpose() -> None:
    observation = last_step(*RUNNING)
    pool = observation.after.scheduler.pool
    fewer = tuple(refs - (block == 5) for block, refs in enumerate(pool.refs))
    assert "OWN-EXCLUSIVE" in judged(with_pool(observation, refs=fewer))
    assert "OWN-EXCLUSIVE" in judged(with_pool(observation, refs=(1, *pool.refs[1:])))
    elsewhere = attrs.evolve(observation.after.scheduler.requests["r"], tables=((1, 4, 5), (0, 3, 6)))
    assert "OWN-EXCLUSIVE" in judged(with_request(observation, "r", lambda _: elsewhere))
    unhashed = with_request(observation, "r", lambda request: attrs.evolve(request, tables=((1, 3, 5), (0, 5, 6))))
    assert "OWN-EXCLUSIVE" in judged(unhashed)


def test_scheduler_and_worker_have_the_same_tables() -> None:
    observation = last_step(*RUNNING)
    mirror = attrs.evolve(observation.after.worker.mirrors["r"], tables=((1, 3, 9), (0, 4, 6)))
    worker = attrs.evolve(observation.after.worker, mirrors={"r": mirror})
    broken = attrs.evolve(observation, after=attrs.evolve(observation.after, worker=worker))
    assert judged(broken) == {"OWN-EXCLUSIVE"}


def test_a_request_writes_to_blocks_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def extends_with_null(
        configuration: Configuration, pool: Pool, request: Request, start: int, tokens: int, ahead: int = 0
    ) -> tuple[Pool, Request, tuple[Copy, ...]]:
        tables = tuple((*table, *(0 for _ in range(len(table), tokens // 2))) for table in request.tables)
        return pool, attrs.evolve(request, tables=tables), ()

    monkeypatch.setattr(step, "extend", extends_with_null)
    replayed = run(V028, hybrid(), arrive("a", 4, 0), Step(), Step())
    told = found(replayed, "OWN-EXCLUSIVE")
    assert (None, "a writes to the null block: group 0, column 1") in told
    assert (None, "a writes to the null block: group 1, column 1") in told


def test_a_block_that_is_written_over_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Pool.take

    def gives_away(pool: Pool, count: int) -> tuple[Pool, tuple[int, ...]]:
        taking, taken = take(pool, count)
        return attrs.evolve(taking, taken=(*taking.taken, 1)), taken

    actions = (arrive("a", 4, 0), Step())
    assert run(V028, hybrid(), *actions, Step()).violations == ()
    before = run(V028, hybrid(), *actions).observations[-1].after
    monkeypatch.setattr(Pool, "take", gives_away)
    _, (observation,) = system.apply(before, V028, Step())
    assert "OWN-EXCLUSIVE" in judged(observation)


def test_blocks_do_not_leak() -> None:
    observation = last_step(*RUNNING)
    pool = observation.after.scheduler.pool
    more = tuple(refs + (block == 5) for block, refs in enumerate(pool.refs))
    assert judged(with_pool(observation, refs=more)) == {"OWN-LEAK"}
    assert judged(with_pool(observation, free=pool.free[1:])) == {"OWN-LEAK"}
    assert "OWN-LEAK" in judged(with_pool(observation, cached={}))
    many = with_request(observation, "r", lambda request: attrs.evolve(request, tables=((), (1, 2, 3))))
    assert "OWN-LEAK" in judged(many)
    idle = with_request(observation, "r", lambda request: attrs.evolve(request, status=Status.WAITING, computed=0))
    assert "OWN-LEAK" in judged(idle)


def test_a_loaded_request_is_not_asked_again() -> None:
    said = (LeafAnswers("store", (ScriptedAnswer(2, asynchronous=True),)),)
    loading = Arrive("r", (Segment("x", 4),), (Segment("o", 2),), said)
    observation = last_step(loading, Step(), EndLoad("r"), Step())
    assert observation.before.scheduler.requests["r"].status is Status.LOADED
    asked = with_request(observation, "r", lambda request: attrs.evolve(request, asked={"store": 2}))
    assert judged(asked) == {"LOAD-SOURCE"}


def test_asking_changes_nothing() -> None:
    observation = last_step(arrive("r", 4, 0, store=None), Step())
    assert observation.asked_again == ("r",)
    touched = with_request(observation, "r", lambda request: attrs.evolve(request, computed=2, tables=((), ())))
    assert "ASK-PURE" in judged(touched)


@pytest.mark.mutants
def test_what_a_failed_load_leaves_must_be_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    actions = (arrive("r", 4, 3, store=2), Step(failed_loads=("r",)))
    assert run(V028, hybrid(STORE), *actions).violations == ()
    monkeypatch.setattr(system, "recover", lambda scheduler, step: Recovered(scheduler))
    told = [message for _, message in found(run(V028, hybrid(STORE), *actions), "LOAD-ROLLBACK")]
    assert told[0] == "r: its load of [0, 2) failed, and it goes on from 4; all groups are valid up to 0"


def test_a_rolled_back_request_keeps_neither_blocks_nor_output_nor_hashes() -> None:
    observation = last_step(arrive("r", 4, 3, store=2), Step(failed_loads=("r",)))
    longer = with_request(observation, "r", lambda request: attrs.evolve(request, tokens=(*request.tokens, "more")))
    assert judged(longer) == {"LOAD-ROLLBACK"}
    label = Label(0, observation.after.scheduler.requests["r"].tokens[:4])
    (chunk,) = observation.after.worker.mirrors["r"].tables[:1]
    pool = observation.after.scheduler.pool.publish(chunk[1], label)
    assert judged(with_scheduler(observation, pool=pool)) == {"LOAD-ROLLBACK", "STATE-LABEL"}


def test_a_failed_asynchronous_load_starts_over() -> None:
    said = (LeafAnswers("store", (ScriptedAnswer(2, asynchronous=True),)),)
    loading = Arrive("r", (Segment("x", 4),), (Segment("o", 2),), said)
    ended = last_step(loading, Step(), EndLoad("r", succeeded=False))
    loaded = with_request(ended, "r", lambda request: attrs.evolve(request, status=Status.LOADED))
    assert judged(loaded) == {"LOAD-ROLLBACK"}
    kept = attrs.evolve(last_step(loading, Step(), EndLoad("r"), Step()), before=ended.after)
    assert "LOAD-ROLLBACK" in judged(kept)


def test_tables_have_the_columns_of_their_group() -> None:
    observation = last_step(*RUNNING)
    wider = with_request(observation, "r", lambda request: attrs.evolve(request, tables=((1, 3, 5), (0, 4, 6, 0, 0))))
    assert judged(wider) == {"GEO-BLOCK"}


def test_a_load_has_blocks_to_load_into() -> None:
    observation = last_step(arrive("r", 4, 3, store=2), Step())
    (admitted,) = observation.admissions
    (announced,) = admitted.loads
    nowhere = attrs.evolve(admitted, loads=(attrs.evolve(announced, tables=((1,), (0,))),))
    assert judged(attrs.evolve(observation, admissions=(nowhere,))) == {"GEO-INTERVAL"}


@pytest.mark.mutants
def test_requests_that_never_run_again_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(configuration: Configuration, request: Request, start: int, budget: int) -> int:
        return 0 if start == 0 else chunk_tokens(configuration, request, start, budget)

    monkeypatch.setattr(chunk, "chunk_tokens", never)
    replayed = run(V028, hybrid(), arrive("r", 4, 0), Step())
    assert replayed.violations == (Violation("PROGRESS", None, "r is waiting at 0 of 4 tokens for ever", 1),)
