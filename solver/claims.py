"""CAP-MEET for composites: a composite claims only if it has children and every one of them claims.

The accumulator of a policy's claim is run on concrete values, for children that claim and that do not, until no new
accumulator appears. The table that results is an inductive certificate: z3 and cvc5 both check that it contains the
start, is closed under adding a child, and implies the property at the end. So any number of children is covered; any
depth is, because a nested composite is a child whose claim has the property by induction.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import attrs
import z3

from model.composition import claims_by_list
from model.errors import PolicyError
from model.policy import Child, Policy
from properties.policy_guard import call, part_of, place_of
from solver.obligation import Assumption, Obligation, any_of

ACCUMULATORS = 64
"""A fold with more accumulators than this is checked for short lists only."""

LONGEST_LIST = 5
"""Children of the longest composite that a policy is run for where no proof for every width is possible."""

ADVICE = (
    f"checked for composites of at most {LONGEST_LIST} children only; for a proof write the claim as a fold with a "
    "small accumulator: claim_start, claim_step(acc, child), claim_end(acc)"
)


@attrs.frozen
class Row:
    """One reachable accumulator: its number, and what is true of the children added so far."""

    accumulator: int
    any_child: bool
    all_claim: bool


@attrs.frozen
class Table:
    """Everything that the fold can reach.

    `after[a, claims]` is the accumulator after a child was added to `a`; `claims[a]` is the composite's claim if `a` is
    the last one.
    """

    rows: tuple[Row, ...]
    after: dict[tuple[int, bool], int]
    claims: dict[int, bool]


def folds_claims(policy: Policy) -> bool:
    """Whether the claim is a fold, not a function of the whole list."""
    return not claims_by_list(policy)


def reachable(policy: Policy) -> Table | None:
    """The closure of the fold; None if it has too many accumulators. Raises PolicyError, PolicyRaised, PolicyLoops."""
    numbers: dict[tuple[str, Any], int] = {}
    values: list[Any] = []

    def number(accumulator: Any) -> int:
        try:
            # True == 1, but a policy may tell them apart.
            return numbers.setdefault((repr(accumulator), accumulator), len(values))
        finally:
            if len(numbers) > len(values):
                values.append(accumulator)

    try:
        start = Row(number(part_of(policy, "claim_start")), any_child=False, all_claim=True)
        rows, after = {start: None}, {}
        pending = [start]
        while pending:
            row = pending.pop()
            for claims in (True, False):
                result = call(policy, "claim_step", (values[row.accumulator], Child(claims)))
                after[row.accumulator, claims] = number(result)
                added = Row(after[row.accumulator, claims], any_child=True, all_claim=row.all_claim and claims)
                if added not in rows:
                    rows[added] = None
                    pending.append(added)
            if len(values) > ACCUMULATORS:
                return None
    except TypeError as error:
        place = place_of(part_of(policy, "claim_step"))
        message = f"{place}: the claim accumulator must be hashable ({error}); use None, bools, ints or tuples"
        raise PolicyError(message) from None
    ends = {index: call(policy, "claim_end", (value,)) for index, value in enumerate(values)}
    return Table(tuple(rows), after, ends)


_ACC, _ACC_AFTER = z3.Int("accumulator"), z3.Int("accumulator after the child")
_ANY, _ALL = z3.Bool("there is a child"), z3.Bool("every child claims")
_CHILD = z3.Bool("the child claims")
_CLAIMS = z3.Bool("the composite claims")


def only_claimers(table: Table) -> tuple[Obligation, ...]:
    """The induction over the children: start, step, and that who claims has only children that claim."""
    step = any_of(
        z3.And(_ACC == acc, _CHILD if claims else z3.Not(_CHILD), _ACC_AFTER == after)
        for (acc, claims), after in table.after.items()
    )
    started = z3.And(_ACC == table.rows[0].accumulator, z3.Not(_ANY), _ALL)
    return (
        Obligation(
            "the table has the start of the claim",
            (Assumption("policy: claim_start", started),),
            _reached(table, _ACC, _ANY, _ALL),
        ),
        Obligation(
            "the table is closed under adding a child",
            (_so_far(table), Assumption("policy: claim_step", step)),
            _reached(table, _ACC_AFTER, z3.BoolVal(True), z3.And(_ALL, _CHILD)),
        ),
        Obligation("a composite that claims has only children that claim", _at_end(table), z3.Implies(_CLAIMS, _ALL)),
    )


def never_empty(table: Table) -> Obligation:
    """The other half of CAP-MEET."""
    return Obligation("a composite that claims has children", _at_end(table), z3.Implies(_CLAIMS, _ANY))


def _so_far(table: Table) -> Assumption:
    return Assumption("table: reached so far", _reached(table, _ACC, _ANY, _ALL))


def _at_end(table: Table) -> tuple[Assumption, ...]:
    end = any_of(z3.And(_ACC == acc, _CLAIMS if claims else z3.Not(_CLAIMS)) for acc, claims in table.claims.items())
    return _so_far(table), Assumption("policy: claim_end", end)


def _reached(table: Table, accumulator: z3.ArithRef, any_child: z3.BoolRef, all_claim: z3.BoolRef) -> z3.BoolRef:
    return any_of(
        z3.And(accumulator == row.accumulator, any_child == row.any_child, all_claim == row.all_claim)
        for row in table.rows
    )


def wrong_claim(policy: Policy) -> tuple[bool, ...] | None:
    """The shortest list of children's claims for which the composite claims although it must not."""
    return next((claims for claims in short_lists() if _claim(policy, claims) and not (claims and all(claims))), None)


def short_lists() -> Iterator[tuple[bool, ...]]:
    """Claims of the children of every composite of at most LONGEST_LIST children, shortest first."""
    for length in range(LONGEST_LIST + 1):
        yield from itertools.product((True, False), repeat=length)


def _claim(policy: Policy, claims: tuple[bool, ...]) -> bool:
    children = [Child(claim) for claim in claims]
    if claims_by_list(policy):
        return bool(call(policy, "claims", (children,)))
    accumulator = part_of(policy, "claim_start")
    for child in children:
        accumulator = call(policy, "claim_step", (accumulator, child))
    return bool(call(policy, "claim_end", (accumulator,)))
