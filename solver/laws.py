"""What an admission may rely on, law by law: finders, summary, reconciling lookup, connector contract, worker.

The names are those that cores show. Laws named after an invariant are lemmas: they are proved elsewhere for the same
policy, and what uses one is worth no more than its proof.
"""

from __future__ import annotations

import functools

import z3

from model.configuration import ConfigurationClass, WorkerOrder
from model.connector import Contract
from properties.verdict import CACHE_SOUNDNESS
from solver.arithmetic import division_facts, quotient, remainder
from solver.obligation import Assumption
from solver.world import (
    ALIGNED_COMMON,
    ASYNCHRONOUS,
    BACKED,
    CAP,
    CLAIMS,
    COMMON,
    CONNECTED,
    COPIED_BEFORE_LOAD,
    DEEPEST,
    FIRST_CHUNK,
    FULL,
    LOWEST_ATTENTION,
    RECURRENT,
    REFERENCE,
    SECOND,
    SHALLOWEST,
    STRENGTH,
    WINNER_CLAIMS,
    WITNESS,
    B,
    Decision,
    N,
    S,
    SpecSymbols,
)

ONLY_CLAIMERS = "CAP-MEET (every child)"
"""The half of CAP-MEET that a load rests on: whoever answers for a tree that claims, claims."""

INPUT_LEMMAS = frozenset({"HIT-SHRINK", "HIT-MEMBER", ONLY_CLAIMERS})
"""Lemmas about what a decision is given. Where one fails, a decision may be wrong, and a trace is looked for."""

LEMMAS = INPUT_LEMMAS | {"LOAD-SOURCE", "LOAD-EXACT", CACHE_SOUNDNESS}

CLAUSES = {
    "claim": "contract: a claim promises the endpoint",
    "state": "contract: state",
    "attention": "contract: attention",
    "range": "contract: range",
    "unassigned": "contract: a leaf that is told 0 writes nothing",
}
"""Clause of the leaf contract, as in model/ready_connectors.py -> the law that grants it."""

PROMISED = z3.Bool("the answer is one that a leaf gave, and that leaf loads")
LOADED_STATE = z3.Bool("the load brings state@R")
LOADED_ATTENTION = z3.Bool("the load brings attention from asked to R")
LOADED_LAGGING_ATTENTION = z3.Bool("the load brings lagging attention below asked")
IN_TIME = z3.Bool("the load is complete before its destination is read")
READS_STATE = z3.Bool("the recurrent group reads state@R")
SEES_FULL = z3.Bool("full attention sees all of [0, R)")
SEES_SECOND = z3.Bool("the second attention spec sees its window below R")


def attention_specs(configuration_class: ConfigurationClass) -> tuple[SpecSymbols, ...]:
    """Attention specs beside the reference."""
    return (SECOND,) if configuration_class.second_attention_spec else ()


@functools.cache
def lookup_laws(configuration_class: ConfigurationClass) -> tuple[Assumption, ...]:
    """What the finders guarantee about each spec alone, and how the summary is made from them.

    Shallowest, deepest and lowest attention are hits of some specs, so what holds of every hit holds of them. Of the
    unit of hits that may end in partial tails nothing is needed.
    """
    attention = attention_specs(configuration_class)
    specs = (RECURRENT, WITNESS, *attention)
    extremes = (SHALLOWEST, DEEPEST, LOWEST_ATTENTION)
    hits = (FULL, *(spec.hit for spec in specs))
    every = (*hits, *extremes)
    bounds = [z3.And(SHALLOWEST <= hit, hit <= DEEPEST) for hit in hits]
    bounds += [LOWEST_ATTENTION <= hit for hit in (FULL, *(spec.hit for spec in attention))]
    already_aligned = z3.Implies(remainder(COMMON, S) == 0, ALIGNED_COMMON == COMMON)
    laws = [
        Assumption("request: at least one token", N >= 1),
        Assumption("sizes: a scheduler block of at least one token", S > 0),
        Assumption("sizes: a block that is copied early, or none", COPIED_BEFORE_LOAD >= 0),
        Assumption("finder: a hit is at most the cap and the request", z3.And(*(_within_cap(hit) for hit in every))),
        Assumption("finder: a hit is a valid boundary", z3.And(*(spec.valid(spec.hit) for spec in specs))),
        Assumption("summary: shallowest, deepest and lowest attention bound the hits", z3.And(*bounds)),
        Assumption("summary: aligned common", z3.And(remainder(ALIGNED_COMMON, S) == 0, already_aligned)),
        Assumption("arithmetic: division by the scheduler block", division_facts(COMMON, S)),
    ]
    if not configuration_class.partial_tails:
        aligned = z3.And(*(remainder(hit, S) == 0 for hit in every))
        laws.append(Assumption("class: hits are multiples of the scheduler block", aligned))
    if not configuration_class.second_attention_spec:
        laws.append(Assumption("class: one attention spec", LOWEST_ATTENTION == FULL))
    return tuple(laws)


def _within_cap(hit: z3.ArithRef) -> z3.BoolRef:
    return z3.And(0 <= hit, z3.Or(hit == 0, hit <= CAP), hit <= N)


def valid_for_full(boundary: z3.ArithRef, configuration_class: ConfigurationClass) -> z3.BoolRef:
    """Full attention is valid at its hit and at every multiple of the scheduler block below it; what lies between is
    left open where hits may end there."""
    within = [remainder(boundary, S) == 0]
    if configuration_class.partial_tails:
        within += [boundary == FULL, REFERENCE.valid(boundary)]
    return z3.And(boundary <= FULL, z3.Or(*within))


def valid_everywhere(boundary: z3.ArithRef, configuration_class: ConfigurationClass) -> z3.BoolRef:
    """`boundary` is a member of every group's set: of the reference's, and of one arbitrary group's of each kind."""
    specs = (RECURRENT, *attention_specs(configuration_class))
    return z3.And(valid_for_full(boundary, configuration_class), *(spec.valid(boundary) for spec in specs))


@functools.cache
def common_hit_lemmas(configuration_class: ConfigurationClass) -> tuple[Assumption, ...]:
    """What is proved of the reconciling lookup with the policy's `accept` (solver/reconcile.py).

    A member of the set of the spec with the least hit is at most that hit.
    """
    both = (COMMON, ALIGNED_COMMON)
    members = [z3.And(valid_everywhere(n, configuration_class), WITNESS.valid(n), n <= SHALLOWEST) for n in both]
    shrunk = z3.And(0 <= ALIGNED_COMMON, ALIGNED_COMMON <= COMMON, z3.Or(COMMON == 0, COMMON <= CAP))
    return Assumption("HIT-SHRINK", shrunk), Assumption("HIT-MEMBER", z3.And(*members))


def answer_laws(decision: Decision) -> tuple[Assumption, ...]:
    """What is granted of every answer, whatever its strength, and what is proved of composites."""
    E, asked = decision.E, decision.asked
    return (
        Assumption("no connector answers nothing", z3.Or(CONNECTED, E == 0)),
        Assumption(CLAUSES["range"], z3.Implies(PROMISED, z3.And(E >= 0, z3.Or(E == 0, asked + E <= N - 1)))),
        Assumption("LOAD-SOURCE", PROMISED),
    )


@functools.cache
def strength_laws(contract: Contract) -> tuple[Assumption, ...]:
    """The cell's contract is the least that any leaf keeps; a claim promises more."""
    return (
        Assumption("contract: strengths", z3.And(Contract.BACKED <= STRENGTH, STRENGTH <= Contract.FULL)),
        Assumption("cell: the contract every leaf keeps", STRENGTH >= contract.value),
        Assumption(CLAUSES["claim"], z3.Implies(WINNER_CLAIMS, STRENGTH >= Contract.ENDPOINT)),
        Assumption(ONLY_CLAIMERS, z3.Implies(CLAIMS, WINNER_CLAIMS)),
    )


def interval_is_exact(decision: Decision) -> z3.BoolRef:
    """What was asked, answered and adopted is one interval."""
    return z3.And(decision.local == decision.asked, decision.external == decision.E)


def interval_lemma(decision: Decision) -> Assumption:
    """What is proved of the adoption of an answer."""
    return Assumption("LOAD-EXACT", z3.Implies(decision.external > 0, interval_is_exact(decision)))


def _if_loaded(decision: Decision, *conditions: z3.BoolRef) -> z3.BoolRef:
    return z3.And(decision.external > 0, PROMISED, interval_is_exact(decision), *conditions)


def state_laws(decision: Decision) -> tuple[Assumption, ...]:
    """Where a recurrent group gets state@R from."""
    nothing_loaded = decision.external == 0
    return (
        Assumption(
            CLAUSES["state"],
            z3.Implies(_if_loaded(decision, z3.Or(STRENGTH >= Contract.ENDPOINT, BACKED)), LOADED_STATE),
        ),
        Assumption(
            "a recurrent group lacks the boundary asked, or all hold it",
            z3.Or(BACKED, z3.Not(WITNESS.valid(decision.asked))),
        ),
        Assumption(
            CACHE_SOUNDNESS,
            z3.And(
                z3.Implies(z3.And(nothing_loaded, RECURRENT.valid(decision.local)), READS_STATE),
                z3.Implies(z3.And(LOADED_STATE, IN_TIME), READS_STATE),
            ),
        ),
    )


def attention_laws(decision: Decision, configuration_class: ConfigurationClass) -> tuple[Assumption, ...]:
    """Where the attention below R comes from. A window that is a hit at a boundary covers what R sees below it."""
    local, asked, nothing_loaded = decision.local, decision.asked, decision.external == 0
    upper = z3.And(decision.external > 0, LOADED_ATTENTION)
    sees = [
        z3.Implies(z3.And(nothing_loaded, valid_for_full(local, configuration_class)), SEES_FULL),
        z3.Implies(
            z3.And(upper, z3.Or(valid_for_full(asked, configuration_class), LOADED_LAGGING_ATTENTION)), SEES_FULL
        ),
    ]
    for spec in attention_specs(configuration_class):
        sees += [
            z3.Implies(z3.And(nothing_loaded, spec.valid(local)), SEES_SECOND),
            z3.Implies(z3.And(upper, z3.Or(spec.valid(asked), LOADED_LAGGING_ATTENTION)), SEES_SECOND),
        ]
    return (
        Assumption(CLAUSES["attention"], z3.Implies(_if_loaded(decision), LOADED_ATTENTION)),
        Assumption(
            "contract: lagging attention",
            z3.Implies(_if_loaded(decision, STRENGTH >= Contract.FULL), LOADED_LAGGING_ATTENTION),
        ),
        Assumption(CACHE_SOUNDNESS, z3.And(*sees)),
    )


def column_ending_at(boundary: z3.ArithRef) -> z3.ArithRef:
    """As in model/geometry.py: ceil(boundary / B) - 1, for a boundary of at least one token."""
    return quotient(boundary - 1, B)


def worker_laws(decision: Decision, order: WorkerOrder) -> tuple[Assumption, ...]:
    """When a load is complete before the worker reads the column of R.

    A synchronous load that follows the copy is too late, unless the first chunk stays in that column.
    """
    if order is WorkerOrder.LOAD_BEFORE_COPY:
        return (Assumption("worker: load before copy", z3.And(IN_TIME, COPIED_BEFORE_LOAD == 0)),)
    resume = decision.resume
    first, last = column_ending_at(resume), column_ending_at(N)
    reached = column_ending_at(resume + FIRST_CHUNK)
    in_time = z3.Implies(z3.Or(ASYNCHRONOUS, first == reached), IN_TIME)
    return (
        Assumption("sizes: a Mamba block and a first chunk of at least one token", z3.And(B > 0, FIRST_CHUNK >= 1)),
        Assumption("the first chunk ends within the request", resume + FIRST_CHUNK <= N),
        Assumption("arithmetic: later boundaries lie in later columns", z3.And(first <= reached, reached <= last)),
        Assumption("worker: copy before load", z3.And(in_time, COPIED_BEFORE_LOAD == B)),
    )
