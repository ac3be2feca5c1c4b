"""Transitions of loads and saves. They stand outside the order of steps: their memory traffic may come at any time.

A load writes exactly what its key names: what a connector restores is the contract's affair, not the cache's.
"""

from __future__ import annotations

import attrs
import z3

from solver.soundness.state import IDLE, LOADED, LOADING, RUNNING, State, at, at_entry, content_at
from solver.soundness.terms import BLOCK, BOUNDARY, ENTRY, KEY, REQUEST, Universal
from solver.soundness.transition import Action, Transition, guard
from solver.soundness.vocabulary import Entry, Formula, Term


def load_in_step(state: State, entry: Entry, block: Term, resume: Term) -> Transition:
    """A synchronous load of the step under construction; it precedes the copies and reads of its step."""
    words = state.words
    upto = words.upto(entry, resume)
    after = attrs.evolve(
        state,
        seen=content_at(state.seen, block, lambda k: words.shows(entry, upto, k)),
        last=content_at(state.last, block, lambda k: words.shows(entry, upto, k)),
        changed=at(state.changed, block, z3.BoolVal(True)),
        filled=at_entry(state.filled, entry, upto),
        awaits=at_entry(state.awaits, entry, z3.BoolVal(False)),
    )
    guards = (
        guard("the entry awaits its load", z3.And(state.awaits(entry), state.table(entry) == block)),
        guard("the request is being admitted", state.status(entry.request) == IDLE),
        guard("below R", z3.And(words.column_start(entry) < resume)),
    )
    return Transition(guards, after, terms={BOUNDARY: (upto,)})


def load_begins(state: State, entry: Entry, block: Term) -> Transition:
    nothing = z3.BoolVal(False)
    quiet = z3.And(state.queued_writes(block) == 0, z3.Not(state.changed(block)))
    unread = z3.And(state.queued_reads(block) == 0, z3.Not(state.reading(block)))
    guards = (
        guard("the request waits for its load", state.status(entry.request) == LOADING),
        guard("the entry awaits its load", z3.And(state.awaits(entry), state.table(entry) == block)),
        guard("not begun before", z3.Not(state.loading(block))),
        guard("no step is going to write the block", quiet),
        guard("no step is going to read the block", unread),
    )
    loader = state.loader
    after = attrs.evolve(
        state,
        loading=at(state.loading, block, z3.BoolVal(True)),
        loader=lambda b: _entry_if(b == block, entry, loader(b)),
        now=content_at(state.now, block, lambda _: nothing),
        seen=content_at(state.seen, block, lambda _: nothing),
        last=content_at(state.last, block, lambda _: nothing),
    )
    return Transition(guards, after)


def _entry_if(condition: Formula, one: Entry, other: Entry) -> Entry:
    return Entry(
        z3.If(condition, one.request, other.request),
        z3.If(condition, one.group, other.group),
        z3.If(condition, one.column, other.column),
    )


def load_commits(state: State, request: Term) -> Transition:
    words, resume = state.words, state.computed(request)

    def begun(entry: Entry) -> Formula:
        own = z3.And(entry.request == request, state.awaits(entry))
        return z3.Implies(own, state.loading(state.table(entry)))

    def loaded(block: Term) -> Formula:
        return z3.And(state.loading(block), state.loader(block).request == request)

    def shown(block: Term, key: Term) -> Formula:
        entry = state.loader(block)
        return words.shows(entry, words.upto(entry, resume), key)

    def filled(entry: Entry) -> Term:
        own = z3.And(entry.request == request, state.awaits(entry))
        return z3.If(own, words.upto(entry, resume), state.filled(entry))

    after = attrs.evolve(
        state,
        now=lambda b, k: z3.If(loaded(b), shown(b, k), state.now(b, k)),
        seen=lambda b, k: z3.If(loaded(b), shown(b, k), state.seen(b, k)),
        last=lambda b, k: z3.If(loaded(b), shown(b, k), state.last(b, k)),
        loading=lambda b: z3.And(state.loading(b), z3.Not(loaded(b))),
        filled=filled,
        awaits=lambda e: z3.And(state.awaits(e), e.request != request),
        status=at(state.status, request, z3.IntVal(LOADED)),
    )
    guards = (
        guard("the request waits for its load", state.status(request) == LOADING),
        Universal("all of its load has begun", (ENTRY,), begun),
    )
    return Transition(guards, after, terms={BOUNDARY: (resume,)})


def load_fails(state: State, request: Term) -> Transition:
    """Whatever was begun leaves nothing; what the request holds counts for nothing, and is freed later."""

    def lost(block: Term) -> Formula:
        return z3.And(state.loading(block), state.loader(block).request == request)

    after = attrs.evolve(
        state,
        now=lambda b, k: z3.And(state.now(b, k), z3.Not(lost(b))),
        seen=lambda b, k: z3.And(state.seen(b, k), z3.Not(lost(b))),
        last=lambda b, k: z3.And(state.last(b, k), z3.Not(lost(b))),
        loading=lambda b: z3.And(state.loading(b), z3.Not(lost(b))),
        awaits=lambda e: z3.And(state.awaits(e), e.request != request),
        status=at(state.status, request, z3.IntVal(LOADED)),
        withdrawn=at(state.withdrawn, request, z3.BoolVal(True)),
    )
    return Transition((guard("the request waits for its load", state.status(request) == LOADING),), after)


def abort_loading(state: State, request: Term) -> Transition:
    """The blocks are held until the load has ended."""
    guards = (guard("the request waits for its load", state.status(request) == LOADING),)
    return Transition(guards, attrs.evolve(state, withdrawn=at(state.withdrawn, request, z3.BoolVal(True))))


def start_after_load(state: State, request: Term) -> Transition:
    """From R itself: that R is at most N - 1 is HIT-LAST, which the decision proves."""
    loaded = z3.And(state.status(request) == LOADED, z3.Not(state.withdrawn(request)))
    after = attrs.evolve(state, status=at(state.status, request, z3.IntVal(RUNNING)))
    return Transition((guard("the load has ended well", loaded),), after)


def save_begins(state: State, entry: Entry, block: Term) -> Transition:
    """The block is referenced when its step is planned: what is saved may still have to be written. It is a column that
    its request has passed, or a copy of a partial tail that no request holds."""
    words, request = state.words, entry.request
    full, tail = state.full_hash(block), state.tail_hash(block)
    held = z3.And(state.table(entry) == block, words.column_end(entry) <= state.verified(request))
    running = z3.And(state.status(request) == RUNNING, z3.Not(state.withdrawn(request)))
    nobodys = z3.And(state.holders(block) == 0, z3.Or(full != words.no_key, tail != words.no_key))
    key = z3.If(held, words.key_of(entry, state.whole_at(entry)), z3.If(full != words.no_key, full, tail))
    after = attrs.evolve(
        state.with_refs((block, 1)),
        saves=at(state.saves, block, state.saves(block) + 1),
        saved_key=at(state.saved_key, block, key),
    )
    guards = (
        guard("a block that no request writes", z3.And(block != words.null, z3.Or(z3.And(held, running), nobodys))),
        guard("the step under construction does not write the block", z3.Not(state.changed(block))),
    )
    return Transition(guards, after, terms={KEY: (key,)})


def save_ends(state: State, block: Term) -> Transition:
    """It was done, once all steps that write the block had executed, or it was given up."""
    after = state.with_refs((block, -1))
    after = attrs.evolve(after, saves=at(state.saves, block, state.saves(block) - 1))
    return Transition((guard("a save is pending", z3.And(state.saves(block) > 0, block != state.words.null)),), after)


ACTIONS = (
    Action("load in step", (ENTRY, BLOCK, BOUNDARY), load_in_step, "start_load_kv of a synchronous load"),
    Action("load begins", (ENTRY, BLOCK), load_begins, "start_load_kv, _drain_deferred_loads"),
    Action("load commits", (REQUEST,), load_commits, "finished_recving"),
    Action("load fails", (REQUEST,), load_fails, "failed_recving_kv_req_ids"),
    Action("abort loading", (REQUEST,), abort_loading, "finish_requests while a load is under way"),
    Action("start after load", (REQUEST,), start_after_load, "_update_waiting_for_remote_kv"),
    Action("save begins", (ENTRY, BLOCK), save_begins, "wait_for_save, a store's pin"),
    Action("save ends", (BLOCK,), save_ends, "finished_sending"),
)
