"""What the encoding leaves open and the model does not, as wishes: an example of the solver keeps those that it can."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import z3

from model.pool import Label
from model.tokens import begins
from solver.soundness.instance import CONFIGURATION, INSTANCE, LONGEST, TEXTS, WIDTH
from solver.soundness.state import IDLE, LOADED, LOADING
from solver.soundness.terms import BLOCK, ENTRY, KEY, REQUEST
from solver.soundness.vocabulary import Entry, Formula, Term


@functools.cache
def realistic() -> tuple[Formula, ...]:
    """What the encoding leaves open and the model does not: each is kept where the example allows it."""
    state, words = INSTANCE.state, INSTANCE.state.words
    withdrawn = (state.withdrawn(request) for request in INSTANCE.terms.of(REQUEST))
    held = [(entry, state.table(entry) != words.null) for entry in INSTANCE.terms.of(ENTRY)]
    admitted = (z3.Implies(is_held, state.status(entry.request) != IDLE) for entry, is_held in held)

    def cached(entry: Entry) -> Formula:
        key = words.key_of(entry, words.column_end(entry))
        return z3.Implies(state.filled(entry) == words.column_end(entry), state.full_hash(state.table(entry)) == key)

    whole = (
        z3.Or(key == words.no_key, *(words.extent(key) == end for end in range(WIDTH, LONGEST + 1, WIDTH)))
        for key in map(state.full_hash, INSTANCE.terms.of(BLOCK)[1:])
    )
    return (
        _one_content(),
        z3.And(*whole),
        z3.And(*_cached_for_somebody()),
        z3.Not(z3.Or(*withdrawn)),
        z3.And(*_without_drafts()),
        z3.And(*_done_in_this_step()),
        z3.And(*(cached(entry) for entry, _ in held)),
        z3.And(*admitted),
        z3.And(*_loads_load()),
        z3.And(*_little_is_done()),
        _hits_are_whole(),
    )


def _cached_for_somebody() -> Iterator[Formula]:
    """What is cached begins a text that a request has, or the first one, of a request that has ended."""
    state, (_, first, *others) = INSTANCE.state, TEXTS
    requests = INSTANCE.terms.of(REQUEST)[2:]
    for key in INSTANCE.terms.of(KEY):
        prefix = INSTANCE.elements[key].prefix
        there = [state.status(r) != IDLE for r, text in zip(requests, others, strict=True) if begins(prefix, text)]
        if not begins(prefix, first):
            yield from (z3.Implies(state.full_hash(b) == key, z3.Or(*there)) for b in INSTANCE.terms.of(BLOCK)[1:])


def _done_in_this_step() -> Iterator[Formula]:
    """Whatever the step under construction has done leaves all of its marks, not only those that the example needs."""
    state, words = INSTANCE.state, INSTANCE.state.words
    for block in INSTANCE.terms.of(BLOCK)[1:]:
        for request in INSTANCE.terms.of(REQUEST)[1:]:
            yield z3.Implies(z3.And(state.in_step(request), state.held(request, block) >= 1), state.reading(block))
        published = z3.And(state.writer(block) != words.nobody, state.full_hash(block) != words.no_key)
        yield z3.Implies(published, state.fresh_full(block))
    for entry in INSTANCE.terms.of(ENTRY):
        block, computed = state.table(entry), state.computed(entry.request)
        tokens_here = z3.And(words.column_start(entry) < computed, words.column_end(entry) > state.since(entry.request))
        state_here = words.ending(entry.group, computed) == entry.column
        target = z3.If(words.recurrent(entry.group), state_here, tokens_here)
        in_chunk = z3.And(block != words.null, state.in_step(entry.request), target)
        yield z3.Implies(in_chunk, state.writer(block) == entry.request)
        ahead = z3.And(block != words.null, words.column_start(entry) >= computed, z3.Not(state.awaits(entry)))
        yield z3.Implies(z3.And(ahead, state.filled(entry) == 0), state.changed(block))


def _without_drafts() -> Iterator[Formula]:
    """All that is computed is settled, and the state lies where it ends."""
    state = INSTANCE.state
    for request in INSTANCE.terms.of(REQUEST)[1:]:
        yield state.settled(request) == state.computed(request)
        yield state.verified(request) == state.computed(request)
    for entry in INSTANCE.terms.of(ENTRY):
        settled = state.settled(entry.request)
        lies = state.state_column(entry) == state.words.ending(entry.group, settled)
        yield z3.Implies(z3.And(state.words.recurrent(entry.group), settled >= 1), lies)


def _loads_load() -> Iterator[Formula]:
    """A request that loads awaits something, and one that has loaded has got something."""
    state = INSTANCE.state
    for request in INSTANCE.terms.of(REQUEST)[1:]:
        awaited = (state.awaits(entry) for entry in INSTANCE.terms.of(ENTRY) if entry.request is request)
        yield z3.Implies(state.status(request) == LOADING, z3.Or(*awaited))
        yield z3.Implies(state.status(request) == LOADED, state.computed(request) > 0)


def _little_is_done() -> Iterator[Formula]:
    """Nobody is further than one column."""
    yield from (INSTANCE.state.computed(request) <= WIDTH for request in INSTANCE.terms.of(REQUEST))
    yield from (INSTANCE.state.found_at(entry) <= WIDTH for entry in INSTANCE.terms.of(ENTRY))


def _one_content() -> Formula:
    """A block shows what one prefix of one group has left in it."""
    state = INSTANCE.state

    def together(one: Label, other: Label) -> bool:
        texts = one.prefix[: len(other.prefix)] == other.prefix[: len(one.prefix)]
        column = (len(one.prefix) - 1) // WIDTH == (len(other.prefix) - 1) // WIDTH
        return one.group == other.group and texts and column and not CONFIGURATION.groups[one.group].recurrent

    keys = INSTANCE.terms.of(KEY)
    apart = [
        (one, other)
        for one, other in itertools.combinations(keys, 2)
        if not together(INSTANCE.elements[one], INSTANCE.elements[other])
    ]
    return z3.And(
        *(
            z3.Not(z3.And(content(block, one), content(block, other)))
            for content in (state.now, state.seen, state.last)
            for block in INSTANCE.terms.of(BLOCK)[1:]
            for one, other in apart
        )
    )


def _hits_are_whole() -> Formula:
    """What is found for a request are all blocks of one hit, where they are not in its table already."""
    state, words = INSTANCE.state, INSTANCE.state.words

    def hit(request: Term, boundary: Term) -> Iterator[Formula]:
        for entry in INSTANCE.terms.of(ENTRY):
            if entry.request is request:
                upto = words.upto(entry, boundary)
                found = z3.And(state.found(entry) != words.null, state.found_at(entry) == upto)
                there = z3.And(state.table(entry) != words.null, state.filled(entry) == upto)
                nothing = state.found(entry) == words.null
                yield z3.If(words.sees_entry(entry, boundary), z3.Or(found, there), nothing)

    return z3.And(
        *(
            z3.Or(
                z3.And(*(state.found(entry) == words.null for entry in INSTANCE.terms.of(ENTRY) if entry.request is r)),
                *(z3.And(*hit(r, z3.IntVal(n))) for n in range(1, LONGEST + 1)),
            )
            for r in INSTANCE.terms.of(REQUEST)[1:]
        )
    )
