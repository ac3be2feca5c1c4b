"""The words of the cache proof: sorts, entries of block tables, hashes, columns, and the laws about them.

No size is bounded: blocks, requests and groups are terms of uninterpreted sorts, boundaries and columns are integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import z3

from solver.soundness.terms import BOUNDARY, ENTRY, Universal

Formula = Any
"""A z3 formula."""

Term = Any
"""A z3 term of the sort that its name tells: a block, a request, a group, a key, or a boundary in tokens."""


@attrs.frozen(eq=False)
class Entry:
    """One entry of a block table: a column of one group of one request."""

    request: Term
    group: Term
    column: Term

    def is_entry(self, other: Entry) -> Formula:
        """Whether both are the same entry."""
        return z3.And(self.request == other.request, self.group == other.group, self.column == other.column)


@attrs.frozen(eq=False)
class Vocabulary:
    """What never changes. A key is what the hash of n tokens names in one group, exactly: hashes do not collide.

    `key(r, g, n)` is the key of r's first n tokens in group g; `extent` its number of tokens. `start` and `end` are the
    boundaries of a column, `ending(g, n)` the column that holds the last token before n. `sees(g, c, n)` says whether
    what runs from boundary n on reads column c. `every_state(g)`: a recurrent group keeps the state of each column.
    """

    null: Term
    no_key: Term
    nobody: Term
    some_group: Term
    recurrent: Callable[[Term], Formula]
    every_state: Callable[[Term], Formula]
    key: Callable[[Term, Term, Term], Term]
    extent: Callable[[Term], Term]
    start: Callable[[Term, Term], Term]
    end: Callable[[Term, Term], Term]
    ending: Callable[[Term, Term], Term]
    sees: Callable[[Term, Term, Term], Formula]

    def column_end(self, entry: Entry) -> Term:
        """Boundary at which the entry's column is full."""
        return self.end(entry.group, entry.column)

    def column_start(self, entry: Entry) -> Term:
        """Boundary at which the entry's column begins."""
        return self.start(entry.group, entry.column)

    def sees_entry(self, entry: Entry, boundary: Term) -> Formula:
        """Whether what runs from `boundary` on reads the entry."""
        return self.sees(entry.group, entry.column, boundary)

    def upto(self, entry: Entry, boundary: Term) -> Term:
        """How far the entry's column is filled when its request stands at `boundary`."""
        end = self.column_end(entry)
        return z3.If(end <= boundary, end, boundary)

    def shows(self, entry: Entry, boundary: Term, key: Term) -> Formula:
        """Whether a block that was filled for the entry up to `boundary` holds what `key` promises: in a recurrent
        group that state alone, in an attention group every shorter prefix that ends in the column too."""
        extent = self.extent(key)
        within = z3.And(self.column_start(entry) < extent, extent <= boundary, key == self.key_of(entry, extent))
        state_alone = z3.And(extent == boundary, key == self.key_of(entry, boundary))
        return z3.If(self.recurrent(entry.group), state_alone, within)

    def key_of(self, entry: Entry, boundary: Term) -> Term:
        """Key of the first `boundary` tokens of the entry's request in the entry's group."""
        return self.key(entry.request, entry.group, boundary)


BLOCK_SORT = z3.DeclareSort("Block")
REQUEST_SORT = z3.DeclareSort("Request")
GROUP_SORT = z3.DeclareSort("Group")
KEY_SORT = z3.DeclareSort("Key")
_INT, _BOOL = z3.IntSort(), z3.BoolSort()

SYMBOLIC = Vocabulary(
    null=z3.Const("null", BLOCK_SORT),
    no_key=z3.Const("no key", KEY_SORT),
    nobody=z3.Const("nobody", REQUEST_SORT),
    some_group=z3.Const("some group", GROUP_SORT),
    recurrent=z3.Function("recurrent", GROUP_SORT, _BOOL),
    every_state=z3.Function("keeps every state", GROUP_SORT, _BOOL),
    key=z3.Function("key", REQUEST_SORT, GROUP_SORT, _INT, KEY_SORT),
    extent=z3.Function("extent", KEY_SORT, _INT),
    start=z3.Function("start of column", GROUP_SORT, _INT, _INT),
    end=z3.Function("end of column", GROUP_SORT, _INT, _INT),
    ending=z3.Function("column ending at", GROUP_SORT, _INT, _INT),
    sees=z3.Function("sees", GROUP_SORT, _INT, _INT, _BOOL),
)


def laws_of(words: Vocabulary, stands_at: Callable[[Entry], tuple[Term, ...]]) -> tuple[Universal, ...]:
    """Laws about keys and columns. Columns of equal width keep them (geometry.py).

    `stands_at` are the boundaries that a state knows of an entry; laws are used of these and of an action's own.
    """

    def at_boundaries(law: Callable[[Entry, Term], Formula]) -> Iterator[Universal]:
        name = NAMES[law.__name__]
        yield Universal(name, (ENTRY, BOUNDARY), law)
        yield Universal(f"{name}, as it stands", (ENTRY,), lambda e: z3.And(*(law(e, n) for n in stands_at(e))))

    def column(entry: Entry, boundary: Term) -> Formula:
        inside = z3.And(words.column_start(entry) < boundary, boundary <= words.column_end(entry))
        ends_in = words.ending(entry.group, boundary)
        behind = (boundary <= words.column_start(entry)) == (ends_in < entry.column)
        return z3.And(
            0 <= words.column_start(entry),
            words.column_start(entry) < words.column_end(entry),
            z3.Implies(boundary >= 1, z3.And(inside == (ends_in == entry.column), behind)),
        )

    def apart(one: Entry, other: Entry) -> Formula:
        before = words.column_end(one) <= words.column_start(other)
        after = words.column_end(other) <= words.column_start(one)
        same = z3.And(one.group == other.group, one.column != other.column)
        return z3.Implies(same, z3.Or(before, after))

    def state_read(entry: Entry, boundary: Term) -> Formula:
        here = z3.And(boundary >= 1, words.ending(entry.group, boundary) == entry.column)
        return z3.Implies(words.recurrent(entry.group), words.sees_entry(entry, boundary) == here)

    def sight(entry: Entry, boundary: Term) -> Formula:
        start, end = words.column_start(entry), words.column_end(entry)
        partly = z3.And(start < boundary, boundary < end)
        seen = words.sees_entry(entry, boundary)
        return z3.And(z3.Implies(seen, start < boundary), z3.Implies(partly, seen))

    def only_forward(entry: Entry, boundary: Term) -> Formula:
        """Of the boundary and each at which the entry stands."""
        return z3.And(*(z3.And(_forward(entry, n, boundary), _forward(entry, boundary, n)) for n in stands_at(entry)))

    def _forward(entry: Entry, earlier: Term, later: Term) -> Formula:
        sooner = z3.And(words.column_start(entry) < earlier, earlier <= later)
        kept = z3.Implies(words.sees_entry(entry, later), words.sees_entry(entry, earlier))
        return z3.Implies(z3.And(z3.Not(words.recurrent(entry.group)), sooner), kept)

    def keys(entry: Entry, boundary: Term) -> Formula:
        key = words.key_of(entry, boundary)
        return z3.And(key != words.no_key, words.extent(key) == boundary)

    def agree(one: Entry, other: Entry, boundary: Term, shorter: Term) -> Formula:
        equal = words.key_of(one, boundary) == words.key_of(other, boundary)
        same = z3.And(one.group == other.group, words.key_of(one, shorter) == words.key_of(other, shorter))
        return z3.Implies(z3.And(equal, 0 < shorter, shorter <= boundary), same)

    def full_key(entry: Entry) -> Formula:
        return keys(entry, words.column_end(entry))

    return (
        *(universal for law in (keys, column, state_read, sight, only_forward) for universal in at_boundaries(law)),
        Universal("hashes: a full one names its column's end", (ENTRY,), full_key),
        Universal("hashes: equal keys agree on what is shorter", (ENTRY, ENTRY, BOUNDARY, BOUNDARY), agree),
        Universal("columns: two columns share no token", (ENTRY, ENTRY), apart),
    )


NAMES = {
    "keys": "hashes: a key names its number of tokens",
    "column": "columns: a boundary ends in one column, and those behind it begin there or later",
    "state_read": "reading: a state is read in the column where it ends",
    "sight": "reading: nothing beyond, and a partly filled column always",
    "only_forward": "reading: a window only moves forward",
}
"""Laws by what they are called in cores."""
