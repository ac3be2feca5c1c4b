"""Geometry for all sizes: alignment, grids, columns, tails and the drop, each as a lemma in witness form.

A number that is aligned is given as a product, n = B * q, and the goal names its own witness, so that no solver has to
divide. What the lemmas say of columns of equal width is what the laws about columns ask for (vocabulary.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import z3

from solver.decide import Decider
from solver.finding import Finding, finding_of
from solver.obligation import Assumption, Obligation

B, Q, R, S, U, K, M, N = z3.Ints("B q r S u k m n")
C, D, W = z3.Ints("c d w")


@attrs.frozen(eq=False)
class Lemma:
    """`given` implies `goal` for all integers. `about` is the invariant of the catalogue that it is about."""

    name: str
    about: str
    given: dict[str, z3.BoolRef]
    goal: z3.BoolRef

    @property
    def obligation(self) -> Obligation:
        assumptions = tuple(Assumption(name, formula) for name, formula in self.given.items())
        return Obligation(self.name, assumptions, self.goal)


def _start(column: z3.ArithRef) -> z3.ArithRef:
    return B * column


def _end(column: z3.ArithRef) -> z3.ArithRef:
    return B * column + B


_BLOCK = {"a block has tokens": B >= 1}
_ALIGNED = {**_BLOCK, "n is a multiple of the block": N == B * Q}
_DIVIDED = {**_BLOCK, "q and r divide n by the block": z3.And(N == B * Q + R, 0 <= R, R < B)}

LEMMAS = (
    Lemma(
        "a multiple of the scheduler block is a multiple of every block that divides it",
        "GEO-BLOCK",
        {**_BLOCK, "the block divides the scheduler block": S == B * K, "n is a multiple of it": N == S * Q},
        N == B * (K * Q),
    ),
    Lemma(
        "a multiple of a block is a multiple of the hash unit",
        "GEO-BLOCK",
        {"the unit divides the block": B == U * K, "n is a multiple of the block": N == B * Q},
        N == U * (K * Q),
    ),
    Lemma("an aligned boundary ends the column before it", "GEO-BLOCK", _ALIGNED, _end(Q - 1) == N),
    Lemma(
        "an aligned boundary does not reach into the next column",
        "GEO-BLOCK",
        _ALIGNED,
        z3.And(_start(Q) == N, z3.Not(_start(Q) < N)),
    ),
    Lemma(
        "a column begins where the one before it ends",
        "GEO-BLOCK",
        _BLOCK,
        z3.And(_end(C) == _start(C + 1), _start(C) < _end(C)),
    ),
    Lemma(
        "a later column begins at or after the end of an earlier one",
        "GEO-BLOCK",
        {
            **_BLOCK,
            "d is later": D == C + 1 + W,
            "of w blocks": M == B * W,
            "that is not negative": M >= 0,
        },
        _end(C) + M == _start(D),
    ),
    Lemma(
        "a boundary that is not aligned ends in the column of its quotient",
        "GEO-BLOCK",
        {**_DIVIDED, "it is not aligned": R >= 1},
        z3.And(_start(Q) < N, N < _end(Q)),
    ),
    Lemma(
        "floor and rest: the tail of a boundary is shorter than a block",
        "GEO-INTERVAL",
        _DIVIDED,
        z3.And(B * Q <= N, N - B * Q < B),
    ),
    Lemma(
        "a tail of the scheduler block that is a multiple of a smaller block is whole columns of it",
        "GEO-INTERVAL",
        {
            **_BLOCK,
            "the block divides the scheduler block": S == B * K,
            "L and its tail": N == S * Q + R,
            "the tail is columns": R == B * M,
        },
        N == B * (K * Q + M),
    ),
    Lemma(
        "dropping one unit from an aligned boundary leaves an aligned one",
        "GEO-BLOCK",
        {
            "the unit divides the boundary": N == U * Q,
            "the unit has tokens": U >= 1,
            "there is something to drop": Q >= 1,
        },
        z3.And(N - U == U * (Q - 1), 0 <= U * (Q - 1)),
    ),
    Lemma(
        "asked, answered and adopted are one interval: its columns are those of L and of R",
        "GEO-INTERVAL",
        {**_ALIGNED, "R is L + E": M == N + K, "E is columns": K == B * W},
        M == B * (Q + W),
    ),
    Lemma(
        "a window of w tokens before n sees nothing before column q if its first token is in it",
        "GEO-BLOCK",
        {
            **_BLOCK,
            "the first token seen": z3.And(N - W == B * Q + R, 0 <= R, R < B),
            "an earlier column": C == Q - 1 - D,
            "of d blocks": M == B * D,
            "that is not negative": M >= 0,
        },
        _end(C) <= N - W,
    ),
)
"""Each with its witnesses: q for n, k for the scheduler block, and products of them."""


def examine_geometry(decider: Decider, lemmas: Sequence[Lemma] = LEMMAS) -> dict[Lemma, Finding]:
    """The finding on each lemma."""
    return {lemma: finding_of(decider.decide(lemma.obligation)) for lemma in lemmas}
