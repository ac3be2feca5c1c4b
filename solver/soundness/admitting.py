"""Transitions of an admission: look up, touch, take blocks, wait for a load, start at R.

A lookup and the touch of what it found are two transitions, and so are the touches of two blocks: whatever may come
between them is between them here.
"""

from __future__ import annotations

import attrs
import z3

from solver.soundness.state import IDLE, LOADING, RUNNING, State, at, at_entry, content_at
from solver.soundness.terms import BLOCK, BOUNDARY, ENTRY, REQUEST, Universal
from solver.soundness.transition import Action, Transition, guard
from solver.soundness.vocabulary import Entry, Formula, Term


def sought_by_nobody(state: State, block: Term, which: str = "block") -> Universal:
    """No outstanding lookup found `block`: admissions touch what they found before anything is taken."""
    return Universal(f"no outstanding lookup found the {which}", (ENTRY,), lambda entry: state.found(entry) != block)


def look_up(state: State, entry: Entry, block: Term, boundary: Term) -> Transition:
    words = state.words
    key = words.key_of(entry, boundary)
    full = z3.And(boundary == words.column_end(entry), state.full_hash(block) == key)
    inside = z3.And(words.column_start(entry) < boundary, boundary < words.column_end(entry))
    tail = z3.And(inside, state.tail_hash(block) == key)
    after = attrs.evolve(
        state,
        found=at_entry(state.found, entry, block),
        found_at=at_entry(state.found_at, entry, boundary),
    )
    guards = (
        guard("the request has nothing computed", state.status(entry.request) == IDLE),
        guard("a block of the pool", block != words.null),
        guard("cached for the boundary", z3.Or(full, tail)),
    )
    return Transition(guards, after)


def drop_lookup(state: State, entry: Entry) -> Transition:
    guards = (guard("something was found", state.found(entry) != state.words.null),)
    return Transition(guards, attrs.evolve(state, found=at_entry(state.found, entry, state.words.null)))


def touch(state: State, entry: Entry, block: Term) -> Transition:
    words = state.words
    same_step_state = z3.And(words.recurrent(entry.group), state.fresh_full(block))
    guards = (
        guard("the block was found, full", z3.And(state.found(entry) == block, block != words.null)),
        guard("the hit is a whole block", state.found_at(entry) == words.column_end(entry)),
        guard("the column is empty", state.table(entry) == words.null),
        guard("the request is being admitted", _admitted(state, entry.request)),
        guard("no state of this step", z3.Not(same_step_state)),
    )
    after = state.with_table((entry, block)).with_refs((block, 1))
    after = attrs.evolve(
        after,
        filled=at_entry(state.filled, entry, words.column_end(entry)),
        found=at_entry(state.found, entry, words.null),
    )
    return Transition(guards, after)


def _admitted(state: State, request: Term) -> Formula:
    known = request != state.words.nobody
    return z3.And(known, state.status(request) == IDLE, z3.Not(state.withdrawn(request)))


def allocate(state: State, entry: Entry, block: Term) -> Transition:
    """The block's hashes go, and the step under construction wipes it before it reads anything."""
    words, request = state.words, entry.request
    beyond = words.column_end(entry) > state.computed(request)
    nothing = z3.BoolVal(False)
    after = attrs.evolve(
        state.with_table((entry, block)).with_refs((block, 1)),
        full_hash=at(state.full_hash, block, words.no_key),
        tail_hash=at(state.tail_hash, block, words.no_key),
        seen=content_at(state.seen, block, lambda _: nothing),
        last=content_at(state.last, block, lambda _: nothing),
        changed=at(state.changed, block, z3.BoolVal(True)),
    )
    guards = (
        guard("a free block of the pool", z3.And(block != words.null, state.refs(block) == 0)),
        guard("the column is empty", state.table(entry) == words.null),
        guard("a column that its request has not passed", z3.Or(state.status(request) == IDLE, beyond)),
        guard("not after the chunk of this step", z3.Not(state.in_step(request))),
        sought_by_nobody(state, block),
    )
    return Transition(guards, after)


def evict(state: State, block: Term) -> Transition:
    words = state.words
    after = attrs.evolve(
        state,
        full_hash=at(state.full_hash, block, words.no_key),
        tail_hash=at(state.tail_hash, block, words.no_key),
    )
    return Transition((guard("unreferenced", state.refs(block) == 0), sought_by_nobody(state, block)), after)


def await_load(state: State, entry: Entry) -> Transition:
    """What the load fills is not wiped: the load may begin before the step that announces it runs. Until it begins, the
    block keeps what it has, which a save may still have to read; nobody else is to."""
    block, nothing = state.table(entry), z3.BoolVal(False)
    guards = (
        guard("the request is being admitted", _admitted(state, entry.request)),
        guard("a block that was taken for it", z3.And(block != state.words.null, state.filled(entry) == 0)),
        guard("the block is not cached", _unhashed(state, block)),
        guard("nothing else refers to the block", state.refs(block) == 1),
    )
    after = attrs.evolve(
        state,
        awaits=at_entry(state.awaits, entry, z3.BoolVal(True)),
        seen=content_at(state.seen, block, lambda _: nothing),
        last=content_at(state.last, block, lambda _: nothing),
        changed=at(state.changed, block, nothing),
    )
    return Transition(guards, after, terms={BLOCK: (block,)})


def _unhashed(state: State, block: Term) -> Formula:
    words = state.words
    return z3.And(state.full_hash(block) == words.no_key, state.tail_hash(block) == words.no_key)


def start(state: State, request: Term, boundary: Term, asynchronous: Formula) -> Transition:
    """What the first two universal guards ask for is what a policy's decision has to give: HIT-RESUME and HIT-COVER."""
    words = state.words

    def seen_is_held(entry: Entry) -> Formula:
        seen = z3.And(entry.request == request, words.sees_entry(entry, boundary))
        return z3.Implies(seen, state.table(entry) != words.null)

    def held_is_valid(entry: Entry) -> Formula:
        below = z3.And(state.table(entry) != words.null, words.column_start(entry) < boundary)
        valid = z3.Or(state.awaits(entry), state.filled(entry) == words.upto(entry, boundary))
        return z3.Implies(z3.And(entry.request == request, below), valid)

    def not_beyond(entry: Entry) -> Formula:
        own = z3.And(
            state.filled(entry) <= boundary,
            state.found(entry) == words.null,
            z3.Implies(state.awaits(entry), z3.And(asynchronous, words.column_start(entry) < boundary)),
        )
        return z3.Implies(entry.request == request, own)

    guards = (
        guard("the request is being admitted", z3.And(_admitted(state, request), boundary >= 0)),
        Universal("what R sees is held", (ENTRY,), seen_is_held),
        Universal("what is held below R is a hit or a load", (ENTRY,), held_is_valid),
        Universal("nothing of a lookup or beyond R is left over", (ENTRY,), not_beyond),
    )

    def state_column(entry: Entry) -> Term:
        return z3.If(entry.request == request, words.ending(entry.group, boundary), state.state_column(entry))

    after = attrs.evolve(
        state.with_progress(request, boundary),
        status=at(state.status, request, z3.If(asynchronous, z3.IntVal(LOADING), z3.IntVal(RUNNING))),
        state_column=state_column,
    )
    return Transition(guards, after)


def _start_now(state: State, request: Term, boundary: Term) -> Transition:
    return start(state, request, boundary, z3.BoolVal(False))


def _start_loading(state: State, request: Term, boundary: Term) -> Transition:
    return start(state, request, boundary, z3.BoolVal(True))


ACTIONS = (
    Action("look up", (ENTRY, BLOCK, BOUNDARY), look_up, "find_longest_cache_hit"),
    Action("drop lookup", (ENTRY,), drop_lookup, "schedule: postponed, or a shorter hit is used"),
    Action("touch", (ENTRY, BLOCK), touch, "BlockPool.touch, add_local_computed_blocks"),
    Action("allocate", (ENTRY, BLOCK), allocate, "BlockPool.get_new_blocks"),
    Action("evict", (BLOCK,), evict, "BlockPool.evict_blocks, _maybe_evict_cached_block"),
    Action("await load", (ENTRY,), await_load, "allocate_external_computed_blocks"),
    Action("start", (REQUEST, BOUNDARY), _start_now, "schedule: a waiting request runs"),
    Action("start loading", (REQUEST, BOUNDARY), _start_loading, "schedule: WAITING_FOR_REMOTE_KVS"),
)
