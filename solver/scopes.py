"""Scopes by name: one per feature, one that crosses them, and the one that other tools are measured on.

Blocks are of 1, 2 or 4 tokens, pools of few blocks, and two or three requests share prefixes: small enough for every
state, large enough that hits of every kind occur. Tests pin how many states and transitions each has.
"""

from __future__ import annotations

import attrs

from model.actions import Arrive, LeafAnswers, ScriptedAnswer
from model.configuration import Configuration, Eviction, Group, GroupKind, WorkerOrder
from model.connector import Composite, Contract, Leaf
from model.release import RELEASES
from model.tokens import Segment
from solver.scope import Disturbance, Scope

_OUTER = Leaf("outer", claims=True, contract=Contract.ENDPOINT)
_INNER = Leaf("inner", claims=True, contract=Contract.ENDPOINT)
_STORE = Leaf("store", claims=False, contract=Contract.BACKED)
_ALL_CLAIM = Composite((_OUTER, Composite((_INNER,))))
_SOME_CLAIM = Composite((_OUTER, Composite((_STORE,))))


def _full(block: int) -> Group:
    return Group(GroupKind.FULL_ATTENTION, block)


def _mamba(block: int) -> Group:
    return Group(GroupKind.MAMBA, block)


def _request(name: str, shared: int, own: int, output: int = 1, **answers: tuple[ScriptedAnswer, ...]) -> Arrive:
    """`shared` tokens that all requests have in common, then `own` ones, then `output` sampled ones."""
    prompt = tuple(segment for segment in (Segment("x", shared), Segment(name, own)) if segment.length)
    said = tuple(LeafAnswers(leaf, script) for leaf, script in answers.items())
    return Arrive(name, prompt, (Segment(f"{name}-out", output),), said)


def _loads(tokens: int) -> tuple[ScriptedAnswer, ...]:
    return (ScriptedAnswer(tokens),)


def _loads_later(tokens: int) -> tuple[ScriptedAnswer, ...]:
    return (ScriptedAnswer(tokens, asynchronous=True),)


_UNKNOWN = ScriptedAnswer(None)

_EVERY_SCOPE = (
    Scope(
        "local",
        Configuration((_full(2), _mamba(2)), pool_blocks=6, budget=2, eviction=Eviction.ADVERSARIAL),
        (_request("a", 4, 0), _request("b", 4, 1)),
        reaches=("LOCAL-HIT", "DEEPER-THAN-ATTENTION", "EVICTED-AT-WILL", "STATE-COPIED"),
    ),
    Scope(
        "same-step",
        Configuration((_full(1), _mamba(1)), pool_blocks=8, budget=4),
        (_request("a", 2, 0, output=2), _request("b", 2, 1), _request("c", 2, 1)),
        reaches=("LOCAL-HIT", "PUT-OFF"),
    ),
    Scope(
        "synchronous-load",
        Configuration((_full(1), _mamba(1)), 7, 1, connector=_STORE, eviction=Eviction.ADVERSARIAL),
        (_request("a", 2, 0), _request("b", 2, 1, store=_loads(1))),
        frozenset({Disturbance.FAILED_LOADS}),
        ("LOCAL-HIT", "LOCAL-AND-EXTERNAL-HIT", "SYNCHRONOUS-LOAD-FAILED"),
    ),
    Scope(
        "asynchronous-load",
        Configuration((_full(1), _mamba(1)), 7, 2, connector=_OUTER),
        (_request("a", 3, 0), _request("b", 2, 1, outer=_loads_later(1))),
        frozenset({Disturbance.FAILED_LOADS, Disturbance.ABORT}),
        ("LOADED-ASYNCHRONOUSLY", "ASYNCHRONOUS-LOAD-FAILED", "ABORTED-WHILE-LOADING"),
    ),
    Scope(
        "divergent",
        Configuration((_full(1), _mamba(1)), 7, 1, connector=_OUTER, eviction=Eviction.ADVERSARIAL),
        (_request("a", 2, 0), _request("b", 2, 1, outer=(_UNKNOWN, *_loads(1)))),
        frozenset({Disturbance.FAILED_LOADS}),
        ("DIVERGENT-HIT", "FALLBACK", "DIVERGENT-LOAD-FAILED", "ASKED-AGAIN", "EVICTED-BEFORE-RETRY"),
    ),
    Scope(
        "fallback",
        Configuration((_full(1), _mamba(1)), 8, 1, connector=_OUTER, eviction=Eviction.ADVERSARIAL),
        (_request("a", 3, 0), _request("b", 3, 1)),
        reaches=("LOCAL-HIT", "FALLBACK", "DEEPER-THAN-ATTENTION"),
    ),
    Scope(
        "unaligned-load",
        Configuration((_full(2), _mamba(2)), 6, 2, connector=_OUTER, eviction=Eviction.ADVERSARIAL),
        (_request("a", 4, 0), _request("b", 2, 3, outer=_loads(3))),
        reaches=("UNALIGNED-RESUME", "LOCAL-AND-EXTERNAL-HIT"),
    ),
    Scope(
        "empty-composite",
        Configuration((_full(1), _mamba(1)), 7, 1, connector=Composite((_OUTER, Composite(())))),
        (_request("a", 2, 0), _request("b", 2, 1, outer=_loads(1))),
        reaches=("LOCAL-HIT",),
    ),
    Scope(
        "composite",
        Configuration((_full(1), _mamba(1)), 7, 1, connector=_SOME_CLAIM, eviction=Eviction.ADVERSARIAL),
        (
            _request("a", 2, 0, outer=(_UNKNOWN, *_loads(0)), store=_loads(1)),
            _request("b", 2, 1, outer=_loads(1), store=_loads(2)),
        ),
        reaches=("MIXED-CLAIMS", "NESTED-CHILD-WON", "ASKED-AGAIN"),
    ),
    Scope(
        "preemption",
        Configuration((_full(1), _mamba(1)), pool_blocks=7, budget=3),
        (_request("a", 2, 0, output=2), _request("b", 1, 1, output=2), _request("c", 1, 1, output=2)),
        frozenset({Disturbance.PREEMPT, Disturbance.RESET}),
        ("PREEMPTED", "RESUMED", "RESET", "EVICTED-BY-REUSE"),
    ),
    Scope(
        "second-attention",
        Configuration(
            (_full(2), Group(GroupKind.SLIDING_WINDOW, 1, 2), _mamba(1)),
            pool_blocks=9,
            budget=2,
            connector=_STORE,
            eviction=Eviction.ADVERSARIAL,
        ),
        (_request("a", 3, 0), _request("b", 2, 1, store=_loads(1))),
        reaches=("LOCAL-HIT", "ATTENTION-LAGS", "WINDOW-NULLS"),
    ),
    Scope(
        "copy-before-load",
        Configuration((_full(1), _mamba(1)), 7, 2, connector=_STORE, worker_order=WorkerOrder.COPY_BEFORE_LOAD),
        (_request("a", 3, 0), _request("b", 2, 1, store=_loads(1))),
        reaches=("LOCAL-HIT",),
    ),
    Scope(
        "crossing",
        Configuration((_full(4), _full(2), _mamba(1)), 8, 2, connector=_ALL_CLAIM, eviction=Eviction.ADVERSARIAL),
        (
            _request("a", 4, 0),
            _request("b", 4, 1, outer=_loads_later(2)),
            _request("c", 2, 2, inner=(_UNKNOWN, *_loads(2))),
        ),
        frozenset(Disturbance),
        ("NESTED-CHILD-WON", "ASKED-AGAIN", "PREEMPTED", "RESET", "SYNCHRONOUS-LOAD-FAILED", "ABORTED-WHILE-LOADING"),
    ),
    Scope(
        "reference",
        Configuration((_full(2), _mamba(1)), 6, 2, connector=_ALL_CLAIM, eviction=Eviction.ADVERSARIAL),
        (_request("a", 4, 0), _request("b", 4, 1, outer=_loads_later(2)), _request("c", 2, 3, inner=_loads(2))),
        frozenset({Disturbance.FAILED_LOADS, Disturbance.ABORT, Disturbance.RESET}),
        ("DIVERGENT-HIT", "FALLBACK", "NESTED-CHILD-WON", "DIVERGENT-LOAD-FAILED", "EVICTED-BY-REUSE", "PREEMPTED"),
    ),
)

_RULES_OF_028 = RELEASES["0.28"]
"""The models for other tools (benchmarks/) were written by the rules of the release that the default policy is of."""

SCOPES: dict[str, Scope] = {
    scope.name: attrs.evolve(scope, configuration=attrs.evolve(scope.configuration, release=_RULES_OF_028))
    for scope in _EVERY_SCOPE
}
"""Name -> scope."""
