"""States and codes: there and back, and nothing is left out that matters."""

from __future__ import annotations

import random
from collections.abc import Iterator

import attrs
import pytest

from model.memory import TAINTED, Memory
from model.policies import POLICIES
from model.pool import Pool
from model.request import Request
from model.scheduler import Scheduler
from model.system import System, apply, initial
from model.worker import Mirror, Worker
from properties.policy_guard import guarded
from solver.codec import Cached, Codec, NotEncodable, Record
from solver.enabled import enabled, failing_steps
from solver.scope import Scope
from solver.scopes import SCOPES
from solver.successors import Successors

POLICY = POLICIES["vllm-0.28"]
WALKED = ("local", "synchronous-load", "asynchronous-load", "composite", "preemption", "second-attention", "crossing")


def walk(scope: Scope, seed: int, actions: int = 25) -> Iterator[System]:
    """States of a random run of the model itself."""
    choose = random.Random(seed)
    system = initial(scope.configuration)
    yield system
    for _ in range(actions):
        possible = list(enabled(scope, system))
        if not possible:
            return
        action = choose.choice(possible)
        after, (observation,) = apply(system, POLICY, action)
        if observation.plan is not None and choose.random() < 0.3:
            for failing in failing_steps(scope, observation.plan):
                after, _ = apply(system, POLICY, failing)
        system = after
        yield system


@pytest.mark.parametrize("sort_blocks", [True, False])
@pytest.mark.parametrize("name", WALKED)
def test_a_code_is_decoded_to_a_state_with_that_code(name: str, sort_blocks: bool) -> None:
    codec = Codec(SCOPES[name], sort_blocks=sort_blocks)
    for seed in range(6):
        for system in walk(SCOPES[name], seed):
            code = codec.encode(system)
            decoded = codec.decode(code)
            assert codec.encode(decoded) == code
            assert codec.decode(codec.encode(decoded)) == decoded


@pytest.mark.parametrize("sort_blocks", [True, False])
@pytest.mark.parametrize("name", WALKED)
def test_what_a_code_leaves_out_makes_no_difference(name: str, sort_blocks: bool) -> None:
    """The state of a run and what is decoded of it have the same successors, violations and events."""
    codec = Codec(SCOPES[name], sort_blocks=sort_blocks)
    successors = Successors(SCOPES[name], guarded(POLICY), codec)

    def told(system: System) -> set[object]:
        return {
            (number, after, judged.events, frozenset(violation.property for violation in judged.violations))
            for number, after, judged in successors.of_state(system)
        }

    for seed in range(2):
        for system in walk(SCOPES[name], seed):
            assert told(system) == told(codec.decode(codec.encode(system)))


def test_without_sorting_a_code_keeps_the_names_of_blocks() -> None:
    codec = Codec(SCOPES["local"], sort_blocks=False)
    for system in walk(SCOPES["local"], 1):
        decoded = codec.decode(codec.encode(system)).scheduler
        assert decoded.pool == system.scheduler.pool
        assert [request.tables for request in decoded.requests.values()] == [
            system.scheduler.requests[name].tables for name in decoded.requests
        ]


def test_every_field_of_the_model_is_either_in_a_code_or_left_out_with_a_reason() -> None:
    """A field that the model gains must be taken up here and in the codec."""

    def fields(kind: type) -> set[str]:
        return {field.name for field in attrs.fields(kind)}

    of_scope = {"name", "prompt_length", "answers", "skip_reading"}
    # A scope with partial tails, a reservation, internal checkpoints, drafts, priorities or several steps in flight is
    # refused.
    never_set = {
        "tails",
        "unmarked",
        "held",
        "prefilling",
        "placeholders",
        "in_flight",
        "stale",
        "drop_stale",
        "last_state",
        "checkpoint",
        "drafts",
        "rerun_to",
        "priority",
    }
    assert fields(Request) - of_scope - never_set == {
        "asked", "computed", "hit_withdrawn", "junction", "loads", "promises", "published", "reported", "started",
        "status", "tables", "tokens", "transferred", "unsampled",
    }  # fmt: skip
    assert fields(Record) == {
        "asked", "computed", "hit_withdrawn", "junction", "known", "loads", "published", "request", "shape", "status",
    }  # fmt: skip
    assert fields(Pool) - {"aliases"} == {"refs", "labels", "free", "cached", "taken"}
    # A scope with auxiliary outputs or partial tails is refused.
    assert fields(Scheduler) - {"outputs", "copied"} == {
        "configuration", "pool", "requests", "running", "waiting", "skipped", "dropped", "stores", "in_flight",
    }  # fmt: skip
    assert fields(Mirror) == {"tables", "running_column", "sound", "load_failed", "computed", "offset"}
    assert fields(Worker) == {"memory", "mirrors", "objects"}
    assert fields(System) == {"configuration", "scheduler", "worker", "texts", "assertion"}


def cached_state() -> tuple[Codec, System]:
    codec = Codec(SCOPES["local"], sort_blocks=True)
    system = next(system for system in walk(SCOPES["local"], 3) if system.scheduler.pool.cached)
    return codec, system


def test_a_label_that_lies_has_no_code() -> None:
    codec, system = cached_state()
    block = next(iter(system.scheduler.pool.cached.values()))[0]
    blocks = list(system.worker.memory.blocks)
    blocks[block] = TAINTED
    worker = attrs.evolve(system.worker, memory=Memory(tuple(blocks)))
    wrong = attrs.evolve(system, worker=worker)
    with pytest.raises(NotEncodable, match="does not hold what it is cached for"):
        codec.encode(wrong)


def test_a_leaked_block_has_no_code() -> None:
    codec, system = cached_state()
    pool = attrs.evolve(system.scheduler.pool, free=system.scheduler.pool.free[1:])
    with pytest.raises(NotEncodable, match="neither free nor referenced"):
        codec.encode(attrs.evolve(system, scheduler=attrs.evolve(system.scheduler, pool=pool)))


def test_blocks_of_one_label_keep_their_order_of_age() -> None:
    codec = Codec(SCOPES["synchronous-load"], sort_blocks=True)
    met = 0
    for seed in range(40):
        for system in walk(SCOPES["synchronous-load"], seed, 40):
            several = {label: blocks for label, blocks in system.scheduler.pool.cached.items() if len(blocks) > 1}
            met += len(several)
            symbols = [codec.symbols[symbol] for symbol in codec.encode(system)[-6:]]
            for label, blocks in several.items():
                ages = sorted(value.age for value in symbols if isinstance(value, Cached) and value.label == label)
                assert ages == list(range(len(blocks)))
    assert met, "no run of these has two blocks of one label"
