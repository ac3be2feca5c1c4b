"""The invariants: what holds of the cache after every run. The first is the aim, the others carry it."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import z3

from solver.soundness.state import IDLE, LOADING, RUNNING, State
from solver.soundness.terms import BLOCK, BOUNDARY, ENTRY, KEY, REQUEST, Kind, Universal
from solver.soundness.vocabulary import Entry, Formula, Term


@attrs.frozen(eq=False)
class Invariant:
    """`holds` of a state says it of one choice of the variables. `property` is what it is about in the catalogue."""

    name: str
    property: str
    statement: str
    variables: tuple[Kind, ...]
    holds: Callable[..., Formula]

    def of(self, state: State) -> Universal:
        """The statement about one state."""
        return Universal(self.name, self.variables, lambda *choice: self.holds(state, *choice))


def _full_hash_is_content(state: State, block: Term) -> Formula:
    key = state.full_hash(block)
    return z3.Implies(key != state.words.no_key, state.last(block, key))


def _tail_hash_is_content(state: State, block: Term) -> Formula:
    key = state.tail_hash(block)
    return z3.Implies(key != state.words.no_key, state.last(block, key))


def _hash_is_visible(state: State, block: Term) -> Formula:
    words, full, tail = state.words, state.full_hash(block), state.tail_hash(block)
    old_full = z3.And(full != words.no_key, z3.Not(state.fresh_full(block)))
    old_tail = z3.And(tail != words.no_key, z3.Not(state.fresh_tail(block)))
    return z3.And(
        z3.Implies(old_full, state.seen(block, full)),
        z3.Implies(old_tail, state.seen(block, tail)),
    )


def _delivered(state: State, entry: Entry, block: Term) -> Formula:
    delivered = z3.And(_names(state, entry, block), state.filled(entry) > 0, z3.Not(state.withdrawn(entry.request)))
    return z3.Implies(delivered, state.last(block, state.words.key_of(entry, state.filled(entry))))


def _names(state: State, entry: Entry, block: Term) -> Formula:
    return z3.And(state.table(entry) == block, block != state.words.null)


def _attention_is_closed(state: State, entry: Entry, block: Term, boundary: Term, shorter: Term) -> Formula:
    words = state.words
    inside = z3.And(words.column_start(entry) < shorter, shorter <= boundary, boundary <= words.column_end(entry))
    key, less = words.key_of(entry, boundary), words.key_of(entry, shorter)
    closed = z3.And(
        z3.Implies(state.seen(block, key), state.seen(block, less)),
        z3.Implies(state.last(block, key), state.last(block, less)),
    )
    return z3.Implies(z3.And(z3.Not(words.recurrent(entry.group)), inside), closed)


def _state_is_visible(state: State, entry: Entry, block: Term) -> Formula:
    words, request = state.words, entry.request
    delivered = z3.And(_names(state, entry, block), state.filled(entry) > 0, z3.Not(state.withdrawn(request)))
    between = z3.And(words.recurrent(entry.group), z3.Not(state.in_step(request)))
    return z3.Implies(z3.And(delivered, between), state.seen(block, words.key_of(entry, state.filled(entry))))


def _reads_state(state: State, entry: Entry, block: Term) -> Formula:
    words, request, since = state.words, entry.request, state.since(entry.request)
    source = z3.And(words.recurrent(entry.group), since > 0, state.read_column(entry) == entry.column)
    reads = z3.And(state.in_step(request), source, state.table(entry) == block)
    right = z3.And(block != words.null, state.seen(block, words.key_of(entry, since)))
    return z3.Implies(reads, right)


def _reads_attention(state: State, entry: Entry, block: Term) -> Formula:
    words, request, since = state.words, entry.request, state.since(entry.request)
    source = z3.And(z3.Not(words.recurrent(entry.group)), since > 0, words.sees_entry(entry, since))
    reads = z3.And(state.in_step(request), source, state.table(entry) == block)
    right = z3.And(block != words.null, state.last(block, words.key_of(entry, words.upto(entry, since))))
    return z3.Implies(reads, right)


def _counts(state: State, request: Term) -> Formula:
    """Whether what the request holds counts for something: it was admitted and is not withdrawn."""
    return z3.And(state.status(request) != IDLE, z3.Not(state.withdrawn(request)))


def _needs_are_held(state: State, entry: Entry) -> Formula:
    words, settled = state.words, state.settled(entry.request)
    needed = z3.And(_counts(state, entry.request), state.reads(entry))
    there = z3.Or(words.recurrent(entry.group), state.awaits(entry), state.filled(entry) == words.upto(entry, settled))
    return z3.Implies(needed, z3.And(state.table(entry) != words.null, there))


def _state_lies_there(state: State, entry: Entry, block: Term) -> Formula:
    words, request, settled = state.words, entry.request, state.settled(entry.request)
    needed = z3.And(
        _counts(state, request), words.recurrent(entry.group), state.reads(entry), _names(state, entry, block)
    )
    key = words.key_of(entry, settled)
    shown = z3.And(state.last(block, key), z3.Or(state.in_step(request), state.seen(block, key)))
    there = z3.And(settled <= words.column_end(entry), z3.Or(state.awaits(entry), shown))
    return z3.Implies(needed, there)


def _passed_is_full(state: State, entry: Entry) -> Formula:
    words = state.words
    passed = z3.And(state.table(entry) != words.null, words.column_end(entry) <= state.settled(entry.request))
    full = z3.Or(state.awaits(entry), state.filled(entry) == state.whole_at(entry))
    return z3.Implies(z3.And(_counts(state, entry.request), passed), full)


def _fill_is_bounded(state: State, entry: Entry) -> Formula:
    words, filled = state.words, state.filled(entry)
    below = z3.Or(state.checkpoint(entry), words.column_start(entry) < filled)
    inside = z3.And(below, state.table(entry) != words.null)
    ahead = z3.Implies(state.status(entry.request) != IDLE, filled <= state.settled(entry.request))
    return z3.And(0 <= filled, filled <= state.whole_at(entry), z3.Implies(filled > 0, inside), ahead)


def _checkpoint_is_behind(state: State, entry: Entry) -> Formula:
    words = state.words
    passed = z3.And(words.recurrent(entry.group), words.column_end(entry) <= state.settled(entry.request))
    stored = z3.And(passed, state.filled(entry) > 0, state.status(entry.request) == RUNNING)
    return z3.Implies(state.checkpoint(entry), stored)


def _open_is_owned(state: State, entry: Entry, block: Term) -> Formula:
    alone = z3.And(state.holders(block) == 1, state.saves(block) == 0)
    return z3.Implies(_is_open(state, entry, block), alone)


def _is_open(state: State, entry: Entry, block: Term) -> Formula:
    return z3.And(_names(state, entry, block), state.filled(entry) < state.whole_at(entry))


def _open_is_unhashed(state: State, entry: Entry, block: Term) -> Formula:
    words, tail = state.words, state.tail_hash(block)
    passed = z3.Implies(tail != words.no_key, words.extent(tail) <= state.filled(entry))
    return z3.Implies(_is_open(state, entry, block), z3.And(state.full_hash(block) == words.no_key, passed))


def _shared_is_hashed(state: State, one: Entry, other: Entry, block: Term) -> Formula:
    live = z3.And(z3.Not(state.withdrawn(one.request)), z3.Not(state.withdrawn(other.request)))
    both = z3.And(_names(state, one, block), _names(state, other, block), z3.Not(one.is_entry(other)))
    return z3.Implies(z3.And(live, both), state.full_hash(block) != state.words.no_key)


def _hash_is_position(state: State, entry: Entry, block: Term) -> Formula:
    words, full = state.words, state.full_hash(block)
    hashed = z3.And(_names(state, entry, block), full != words.no_key, z3.Not(state.withdrawn(entry.request)))
    return z3.Implies(hashed, full == words.key_of(entry, state.whole_at(entry)))


def _references(state: State, block: Term) -> Formula:
    target = z3.If(state.copy_of(block) != state.words.null, 1, 0)
    total = state.holders(block) + state.saves(block) + state.copies(block) + target + state.queued_copies(block)
    return z3.Implies(block != state.words.null, state.refs(block) == total)


def _counts_are_counts(state: State, block: Term) -> Formula:
    references = (state.saves(block), state.copies(block), state.queued_copies(block))
    return z3.And(*(count >= 0 for count in (*references, state.queued_writes(block), state.queued_reads(block))))


def _null_is_nothing(state: State, block: Term) -> Formula:
    words = state.words
    nothing = z3.And(
        state.full_hash(block) == words.no_key,
        state.tail_hash(block) == words.no_key,
        state.copies(block) == 0,
        state.saves(block) == 0,
        state.writer(block) == words.nobody,
        z3.Not(state.loading(block)),
    )
    return z3.Implies(block == words.null, nothing)


def _reads_see_the_rest(state: State, block: Term, key: Term) -> Formula:
    unwritten = state.writer(block) == state.words.nobody
    return z3.Implies(unwritten, state.seen(block, key) == state.last(block, key))


def _settled_is_in_memory(state: State, block: Term, key: Term) -> Formula:
    settled = z3.And(state.queued_writes(block) == 0, z3.Not(state.changed(block)))
    return z3.Implies(z3.And(settled, state.seen(block, key)), state.now(block, key))


def _writer_holds(state: State, block: Term) -> Formula:
    writer, entry = state.writer(block), state.writer_entry(block)
    holds = z3.And(entry.request == writer, state.table(entry) == block, block != state.words.null)
    written = z3.And(holds, state.changed(block), state.in_step(writer))
    return z3.Implies(writer != state.words.nobody, written)


def _in_step_runs(state: State, request: Term) -> Formula:
    runs = z3.And(
        state.status(request) == RUNNING, 0 <= state.since(request), state.since(request) < state.settled(request)
    )
    idle = z3.Implies(state.status(request) == IDLE, state.computed(request) == 0)
    exists = z3.Implies(request == state.words.nobody, state.status(request) == IDLE)
    return z3.And(z3.Implies(state.in_step(request), runs), idle, exists, 0 <= state.computed(request))


def _drafts_are_ahead(state: State, request: Term) -> Formula:
    verified, settled, computed = state.verified(request), state.settled(request), state.computed(request)
    ordered = z3.And(0 <= verified, verified <= settled, settled <= computed)
    return z3.And(ordered, z3.Implies(state.status(request) != RUNNING, verified == computed))


def _waiting_is_for_a_load(state: State, entry: Entry) -> Formula:
    words, block = state.words, state.table(entry)
    status = state.status(entry.request)
    below = z3.Implies(status == LOADING, words.column_start(entry) < state.computed(entry.request))
    pending = z3.And(
        block != words.null,
        state.filled(entry) == 0,
        z3.Or(status == IDLE, status == LOADING),
        below,
        state.tail_hash(block) == words.no_key,
        state.copies(block) == 0,
        state.copy_of(block) == words.null,
    )
    return z3.Implies(state.awaits(entry), pending)


def _loading_is_alone(state: State, block: Term) -> Formula:
    words = state.words
    alone = z3.And(
        state.full_hash(block) == words.no_key,
        state.tail_hash(block) == words.no_key,
        state.queued_writes(block) == 0,
        state.queued_reads(block) == 0,
        z3.Not(state.changed(block)),
        z3.Not(state.reading(block)),
        state.saves(block) == 0,
        state.holders(block) == 1,
    )
    return z3.Implies(state.loading(block), alone)


def _load_is_pinned(state: State, block: Term) -> Formula:
    entry = state.loader(block)
    pinned = z3.And(
        state.table(entry) == block,
        state.awaits(entry),
        state.status(entry.request) == LOADING,
    )
    return z3.Implies(state.loading(block), pinned)


def _save_reads_its_key(state: State, block: Term) -> Formula:
    key = state.saved_key(block)
    due = z3.Implies(state.queued_writes(block) == 0, state.now(block, key))
    stable = z3.And(state.last(block, key), due, z3.Not(state.changed(block)), z3.Not(state.loading(block)))
    return z3.Implies(state.saves(block) > 0, stable)


def _lookup_stands(state: State, entry: Entry, block: Term) -> Formula:
    words, boundary = state.words, state.found_at(entry)
    key = words.key_of(entry, boundary)
    full = z3.And(boundary == words.column_end(entry), state.full_hash(block) == key)
    inside = z3.And(words.column_start(entry) < boundary, boundary < words.column_end(entry))
    tail = z3.And(inside, state.tail_hash(block) == key)
    stands = z3.And(z3.Or(full, tail), state.status(entry.request) == IDLE)
    found = z3.And(state.found(entry) == block, block != words.null)
    return z3.Implies(found, stands)


def _copy_is_as_read(state: State, block: Term, source: Term, key: Term) -> Formula:
    words = state.words
    copied = z3.And(state.copy_of(block) == source, source != words.null)
    fresh = z3.Implies(state.tail_hash(block) != words.no_key, state.fresh_tail(block))
    same = z3.And(state.seen(block, key) == state.seen(source, key), state.changed(block), fresh)
    return z3.Implies(copied, same)


INVARIANTS = (
    Invariant(
        "full hash is content",
        "STATE-LABEL",
        "what a block is cached for in full, it shows once all planned steps are executed",
        (BLOCK,),
        _full_hash_is_content,
    ),
    Invariant(
        "tail hash is content", "STATE-LABEL", "and so it is with a partial tail", (BLOCK,), _tail_hash_is_content
    ),
    Invariant(
        "hash is visible",
        "STATE-VISIBLE",
        "what an earlier step cached, the reads of this step see",
        (BLOCK,),
        _hash_is_visible,
    ),
    Invariant(
        "delivered",
        "HIT-COVER",
        "a block shows what was touched, loaded or computed for the entry that names it",
        (ENTRY, BLOCK),
        _delivered,
    ),
    Invariant(
        "attention is closed",
        "STATE-LABEL",
        "attention that is shown up to a boundary is shown up to every shorter one in the column",
        (ENTRY, BLOCK, BOUNDARY, BOUNDARY),
        _attention_is_closed,
    ),
    Invariant(
        "state is visible",
        "HIT-RESUME",
        "a state delivered to a request that has no chunk in this step is seen by this step's reads",
        (ENTRY, BLOCK),
        _state_is_visible,
    ),
    Invariant(
        "chunk reads its state",
        "HIT-RESUME",
        "until the step is committed, a chunk from n > 0 reads state@n in every recurrent group",
        (ENTRY, BLOCK),
        _reads_state,
    ),
    Invariant(
        "chunk reads its attention",
        "HIT-COVER",
        "and all that it sees below n in every attention group",
        (ENTRY, BLOCK),
        _reads_attention,
    ),
    Invariant(
        "needs are held",
        "HIT-RESUME",
        "what a request needs to go on is in its table, filled or awaited",
        (ENTRY,),
        _needs_are_held,
    ),
    Invariant(
        "state lies there",
        "HIT-RESUME",
        "the running block, or that of the last draft that is right, holds the state from which the request goes on",
        (ENTRY, BLOCK),
        _state_lies_there,
    ),
    Invariant(
        "passed columns are full",
        "STATE-LABEL",
        "a column that the request has passed and still names is filled to its end, or holds a checkpoint",
        (ENTRY,),
        _passed_is_full,
    ),
    Invariant(
        "fill is bounded",
        "STATE-LABEL",
        "nothing is filled beyond its column or the tokens that are right",
        (ENTRY,),
        _fill_is_bounded,
    ),
    Invariant(
        "checkpoint is behind",
        "STATE-LABEL",
        "a checkpoint is a state, in a column that its request has passed",
        (ENTRY,),
        _checkpoint_is_behind,
    ),
    Invariant(
        "open is owned",
        "OWN-EXCLUSIVE",
        "a block that its request may still write has this one holder and no save",
        (ENTRY, BLOCK),
        _open_is_owned,
    ),
    Invariant(
        "open is unhashed",
        "OWN-EXCLUSIVE",
        "it has no full hash, and no tail hash beyond what is filled",
        (ENTRY, BLOCK),
        _open_is_unhashed,
    ),
    Invariant(
        "shared is hashed",
        "OWN-EXCLUSIVE",
        "a block with two holders has a full hash",
        (ENTRY, ENTRY, BLOCK),
        _shared_is_hashed,
    ),
    Invariant(
        "hash is position",
        "OWN-EXCLUSIVE",
        "who holds a cached block holds it where its hash says, or as the checkpoint that it is",
        (ENTRY, BLOCK),
        _hash_is_position,
    ),
    Invariant(
        "references",
        "OWN-LEAK",
        "references are the holders, the pending saves and the copies of this step and of those that wait to run",
        (BLOCK,),
        _references,
    ),
    Invariant("counts", "OWN-LEAK", "no count is negative", (BLOCK,), _counts_are_counts),
    Invariant(
        "null block",
        "OWN-EXCLUSIVE",
        "the null block is not cached, copied, saved, written or loaded",
        (BLOCK,),
        _null_is_nothing,
    ),
    Invariant(
        "unwritten is as read",
        "STATE-VISIBLE",
        "what no chunk of this step writes is at its end as its reads see it",
        (BLOCK, KEY),
        _reads_see_the_rest,
    ),
    Invariant(
        "settled is in memory",
        "STATE-VISIBLE",
        "what reads see of a block that no planned step writes is in memory",
        (BLOCK, KEY),
        _settled_is_in_memory,
    ),
    Invariant(
        "writer holds",
        "OWN-EXCLUSIVE",
        "who writes a block in this step holds it and is in the step",
        (BLOCK,),
        _writer_holds,
    ),
    Invariant(
        "in step runs",
        "OWN-EXCLUSIVE",
        "a request in the step runs, one that waits has computed nothing",
        (REQUEST,),
        _in_step_runs,
    ),
    Invariant(
        "drafts are ahead",
        "HIT-COVER",
        "what is known to be right is right, and what is right was planned; only a request that runs has drafts",
        (REQUEST,),
        _drafts_are_ahead,
    ),
    Invariant(
        "awaited is empty",
        "LOAD-SOURCE",
        "a block that awaits a load below R is uncached, unfilled and no part of a copy",
        (ENTRY,),
        _waiting_is_for_a_load,
    ),
    Invariant(
        "loading is alone",
        "LOAD-ORDER",
        "a block that is being loaded is uncached, and no step or save is going to touch it",
        (BLOCK,),
        _loading_is_alone,
    ),
    Invariant(
        "load is pinned",
        "LOAD-PIN",
        "its loader holds it until the load ends, and the load will make it what the entry needs",
        (BLOCK,),
        _load_is_pinned,
    ),
    Invariant(
        "save reads its key",
        "STORE-FENCE",
        "until a save ends, no further step writes its block, and its content is there once planned steps have run",
        (BLOCK,),
        _save_reads_its_key,
    ),
    Invariant(
        "lookup stands",
        "OWN-EXCLUSIVE",
        "what an outstanding lookup found is still cached for it",
        (ENTRY, BLOCK),
        _lookup_stands,
    ),
    Invariant(
        "copy is as read",
        "STATE-VISIBLE",
        "until the step is committed, a copy is what its source shows to the step's reads",
        (BLOCK, BLOCK, KEY),
        _copy_is_as_read,
    ),
)
