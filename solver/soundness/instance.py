"""A small instance of the encoding: few blocks and requests, every element named, so that its states are concrete.

One attention and one Mamba group with columns of two tokens; two requests whose texts share their first tokens. It
satisfies the laws of the words (vocabulary.py) by construction, and counts of holders are sums over its table entries.
What a statement says of everything, it says here of every element, not of a few terms.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import z3

from model.actions import Arrive
from model.configuration import Configuration, Eviction, Group, GroupKind
from model.pool import Label
from model.tokens import Prefix, Segment, tokens_of
from solver.soundness.invariants import Invariant
from solver.soundness.state import State, symbolic_state
from solver.soundness.terms import BLOCK, BOUNDARY, ENTRY, KEY, REQUEST, Kind, Terms, Universal
from solver.soundness.vocabulary import BLOCK_SORT, GROUP_SORT, KEY_SORT, REQUEST_SORT, Entry, Formula, Term, Vocabulary

WIDTH = 2
"""Tokens in a column of either group."""

COLUMNS = 2

SHARED, LONGEST = 3, 4
"""How many tokens both texts have in common, and how many tokens of a text there are."""

BLOCKS = 6
"""The null block included."""

CONFIGURATION = Configuration(
    (Group(GroupKind.FULL_ATTENTION, WIDTH), Group(GroupKind.MAMBA, WIDTH)),
    pool_blocks=BLOCKS + 2,
    budget=8,
    eviction=Eviction.ADVERSARIAL,
)
"""The instance in the model, which needs some more blocks for the tokens that the instance leaves out."""

ARRIVALS = tuple(
    Arrive(name, (Segment("x", SHARED), Segment(name, 7 - SHARED)), (Segment(f"{name}-out", 1),))
    for name in ("r1", "r2")
)
"""The requests as the model knows them: longer, so that there is something to do behind the instance's tokens."""

NAMES = ("nobody", *(arrival.request for arrival in ARRIVALS))
TEXTS: tuple[Prefix, ...] = ((), *(tokens_of(arrival.prompt)[:LONGEST] for arrival in ARRIVALS))

Element = Any
"""A value without z3: the number of a block, request or group, a label or None, a number, a truth value; an entry is
(request, group, column)."""


@attrs.frozen(eq=False)
class Instance:
    """`state` is arbitrary but for `facts`, `terms` are all elements, and `elements` tells what a term stands for."""

    state: State
    terms: Terms
    facts: tuple[Formula, ...]
    elements: Mapping[Term, Element]

    def is_entry(self, entry: Entry) -> Formula:
        """Whether it is an entry of a request."""
        return z3.Or(*(entry.is_entry(each) for each in self.terms.of(ENTRY)))

    def is_element(self, kind: Kind, term: Any) -> Formula:
        """Whether a term stands for an element that an action may be about: nobody does nothing."""
        if kind is ENTRY:
            return self.is_entry(term)
        if kind is BOUNDARY:
            return z3.And(0 <= term, term <= LONGEST)
        known = self.terms.of(kind)
        return z3.Or(*(term == each for each in (known[1:] if kind is REQUEST else known)))

    def everywhere(self, statement: Universal) -> Formula:
        """The statement about every choice of its variables."""
        return statement.at(self.terms)

    def holds(self, invariant: Invariant) -> Formula:
        """The invariant of the arbitrary state."""
        return _invariant(invariant)

    def counted(self, state: State) -> Iterator[Formula]:
        """Counts are what they count: holders of a block, by request and of all, and copies."""
        nobody, *requests = self.terms.of(REQUEST)
        blocks = self.terms.of(BLOCK)
        for block in blocks[1:]:
            entries = self.terms.of(ENTRY)
            named = [_number(state.table(e) == block for e in entries if e.request is request) for request in requests]
            yield state.held(nobody, block) == 0
            yield from (state.held(r, block) == number for r, number in zip(requests, named, strict=True))
            yield state.holders(block) == z3.Sum(*named)
            yield state.copies(block) == _number(state.copy_of(target) == block for target in blocks)


def _number(formulas: Iterator[Formula]) -> Term:
    return z3.Sum(*(z3.If(formula, 1, 0) for formula in formulas))


@functools.cache
def _invariant(invariant: Invariant) -> Formula:
    return INSTANCE.everywhere(invariant.of(INSTANCE.state))


def _instance() -> Instance:
    blocks = [z3.Const(f"block {number}", BLOCK_SORT) for number in range(BLOCKS)]
    requests = [z3.Const(name, REQUEST_SORT) for name in NAMES]
    groups = [z3.Const(group.kind.value, GROUP_SORT) for group in CONFIGURATION.groups]
    no_key, keys = z3.Const("no key", KEY_SORT), _keys(requests, groups)
    words = _words(blocks[0], no_key, requests[0], groups)
    named = [(words.key(*where), key) for where, (_, key) in keys.items()]
    labelled = {key: label for label, key in keys.values() if label is not None}
    distinct = (blocks, requests, groups, [no_key, *dict.fromkeys(key for _, key in named)])
    entries = [Entry(r, g, z3.IntVal(c)) for r in requests[1:] for g in groups for c in range(COLUMNS)]
    by_kind = {
        BLOCK: blocks,
        REQUEST: requests,
        ENTRY: entries,
        KEY: list(labelled),
        BOUNDARY: [z3.IntVal(number) for number in range(LONGEST + 1)],
    }
    elements = {term: number for terms in (blocks, requests, groups) for number, term in enumerate(terms)}
    facts = (
        *(z3.Distinct(*terms) for terms in distinct),
        *(z3.And(term == key, words.extent(key) == where[2]) for (term, key), where in zip(named, keys, strict=True)),
    )
    terms = Terms({kind: tuple(found) for kind, found in by_kind.items()})
    return Instance(symbolic_state(words), terms, facts, {**elements, **labelled, no_key: None})


def _keys(requests: list[Term], groups: list[Term]) -> dict[tuple[Term, Term, int], tuple[Label | None, Term]]:
    """The key of each request, group and boundary, up to what the next column but one would need, and what it names.
    Nobody has the text of the first request."""
    keys: dict[tuple[Term, Term, int], tuple[Label | None, Term]] = {}
    for (number, request), (index, group) in ((r, g) for r in enumerate(requests) for g in enumerate(groups)):
        for boundary in range(LONGEST + 2 * WIDTH):
            text = max(1, number) if boundary > SHARED else 0
            key = z3.Const(f"key {index} {boundary} {text}", KEY_SORT)
            known = number > 0 and 0 < boundary <= LONGEST
            keys[request, group, boundary] = (Label(index, TEXTS[number][:boundary]) if known else None), key
    return keys


def _words(null: Term, no_key: Term, nobody: Term, groups: list[Term]) -> Vocabulary:
    attention, recurrent = groups

    def ending(_: Term, boundary: Term) -> Term:
        return z3.If(boundary <= 0, -1, (boundary - 1) / WIDTH)

    def sees(group: Term, column: Term, boundary: Term) -> Formula:
        reached = z3.And(boundary >= 1, 0 <= column, WIDTH * column < boundary)
        return z3.And(reached, z3.Implies(group == recurrent, boundary <= WIDTH * column + WIDTH))

    return Vocabulary(
        null=null,
        no_key=no_key,
        nobody=nobody,
        some_group=attention,
        recurrent=lambda group: group == recurrent,
        every_state=lambda _: z3.BoolVal(False),
        key=z3.Function("key", REQUEST_SORT, GROUP_SORT, z3.IntSort(), KEY_SORT),
        extent=z3.Function("extent", KEY_SORT, z3.IntSort()),
        start=lambda _, column: WIDTH * column,
        end=lambda _, column: WIDTH * column + WIDTH,
        ending=ending,
        sees=sees,
    )


INSTANCE = _instance()
