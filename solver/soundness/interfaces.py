"""What the proof about decisions takes from the cache, as obligations about single transitions.

A decision calls a boundary valid, or relies on a load; its law "cache soundness" says that the request then reads what
it needs. From the lookup to the read these are the steps: what is touched still is the hit that was found, and no state
of this step; touch, copy and load deliver what the reader needs; a chunk reads what was delivered. That nothing in
between spoils it is what the invariants say.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import z3

from solver.obligation import Obligation
from solver.soundness.cells import BEFORE, Row
from solver.soundness.running import reads_badly
from solver.soundness.state import State
from solver.soundness.terms import ENTRY, Kind
from solver.soundness.vocabulary import Entry, Formula, Term


@attrs.frozen(eq=False)
class Interface:
    """`holds` says it of the states before and after `action`, the action's arguments and one choice of `variables`."""

    name: str
    action: str
    holds: Callable[..., Formula]
    variables: tuple[Kind, ...] = ()

    def obligation(self, row: Row, choice: tuple[object, ...]) -> Obligation:
        """It follows from the invariants and the action's guards."""
        goal = self.holds(BEFORE, row.transition.after, *row.arguments, *choice)
        return Obligation(self.name, row.assumptions, goal)


def _shows(state: State, entry: Entry, block: Term, boundary: Term) -> Formula:
    """The block shows what the entry needs up to `boundary`: a state before its step's writes, attention after."""
    words = state.words
    key = words.key_of(entry, boundary)
    return z3.If(words.recurrent(entry.group), state.seen(block, key), state.last(block, key))


def _hit_stands(before: State, after: State, entry: Entry, block: Term) -> Formula:
    words = before.words
    cached = before.full_hash(block) == words.key_of(entry, words.column_end(entry))
    return z3.And(cached, z3.Not(z3.And(words.recurrent(entry.group), before.fresh_full(block))))


def _touched(before: State, after: State, entry: Entry, block: Term) -> Formula:
    end = before.words.column_end(entry)
    held = z3.And(after.table(entry) == block, after.filled(entry) == end)
    return z3.And(held, _shows(after, entry, block, end))


def _copied(before: State, after: State, entry: Entry, source: Term, target: Term, boundary: Term) -> Formula:
    held = z3.And(after.table(entry) == target, after.filled(entry) == boundary)
    return z3.And(held, _shows(after, entry, target, boundary), after.seen(target, after.words.key_of(entry, boundary)))


def _loaded_in_step(before: State, after: State, entry: Entry, block: Term, resume: Term) -> Formula:
    upto = before.words.upto(entry, resume)
    held = z3.And(after.table(entry) == block, after.filled(entry) == upto)
    return z3.And(held, _shows(after, entry, block, upto))


def _loaded(before: State, after: State, request: Term, entry: Entry) -> Formula:
    words, block = before.words, before.table(entry)
    upto = words.upto(entry, before.computed(request))
    held = z3.And(after.table(entry) == block, after.filled(entry) == upto, after.now(block, words.key_of(entry, upto)))
    awaited = z3.And(entry.request == request, before.awaits(entry))
    return z3.Implies(awaited, z3.And(held, _shows(after, entry, block, upto)))


def _reads(before: State, after: State, request: Term, end: Term, entry: Entry) -> Formula:
    begin = before.settled(request)
    read = z3.And(entry.request == request, begin > 0, before.reads(entry))
    return z3.Implies(read, z3.Not(reads_badly(before, entry, begin)))


INTERFACES = (
    Interface("what is touched is still the hit that was found, and no state of this step", "touch", _hit_stands),
    Interface("a touched hit is what its reader needs", "touch", _touched),
    Interface("a copied tail is what its reader needs", "copy for reader", _copied),
    Interface("a load of the step is what its reader needs", "load in step", _loaded_in_step),
    Interface("a load that has committed is what its reader needs", "load commits", _loaded, (ENTRY,)),
    Interface(
        "a chunk from n > 0 reads state@n, and all attention that it sees below n", "forward chunk", _reads, (ENTRY,)
    ),
)
