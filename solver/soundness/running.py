"""Transitions of a request that runs: chunk, publication, copies of partial tails, relocation, retirement."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import z3

from solver.soundness.admitting import sought_by_nobody
from solver.soundness.state import IDLE, LOADED, RUNNING, State, at, at_entry, content_at, one_if
from solver.soundness.terms import BLOCK, BOUNDARY, ENTRY, KEY, REQUEST, Universal
from solver.soundness.transition import Action, Transition, guard
from solver.soundness.vocabulary import BLOCK_SORT, GROUP_SORT, Entry, Formula, Term


@attrs.frozen(eq=False)
class ChunkChoice:
    """What a chunk of a request does, as far as its end does not say it.

    `written` says which blocks its forward writes and `written_in` in which group and column; `stored` in which entries
    it stores one more state, that at `stored_at` tokens; `wrong` that it reads something wrong, and `misread` in which
    group and column. The last `drafts` of its tokens are drafts, and it is right up to `settled`.
    """

    written: Callable[[Term], Formula]
    written_in: Callable[[Term], tuple[Term, Term]]
    stored: Callable[[Entry], Formula]
    stored_at: Term
    wrong: Formula
    misread: tuple[Term, Term]
    drafts: Term
    settled: Term


def arbitrary_choice() -> ChunkChoice:
    group = z3.Function("the chunk writes it in group", BLOCK_SORT, GROUP_SORT)
    column = z3.Function("the chunk writes it in column", BLOCK_SORT, z3.IntSort())
    stored = z3.Function("the chunk stores a state in", GROUP_SORT, z3.IntSort(), z3.BoolSort())
    return ChunkChoice(
        written=z3.Function("the chunk writes", BLOCK_SORT, z3.BoolSort()),
        written_in=lambda block: (group(block), column(block)),
        stored=lambda entry: stored(entry.group, entry.column),
        stored_at=z3.Int("the chunk stores the state at"),
        wrong=z3.Bool("the chunk reads something wrong"),
        misread=(z3.Const("misread group", GROUP_SORT), z3.Int("misread column")),
        drafts=z3.Int("drafts"),
        settled=z3.Int("the chunk is right up to"),
    )


def forward(state: State, request: Term, end: Term, choice: ChunkChoice | None = None) -> Transition:
    """The chunk's writes are right if all its reads are; a recurrent state moves, attention grows. Where every state is
    kept, each column that the chunk fills gets the state at its end, and the last one the state of the chunk's end.
    Elsewhere a chunk can store one more state on its way, a checkpoint, in a column that it passes.

    A chunk with drafts writes a row for each: row i, which has i drafts, writes its state i columns behind the one in
    which the chunk ends. Which drafts are right turns out later; content is what is right then. The state at a column's
    end that the right ones reach is copied to that column once they are known; there is one at most, for drafts are
    fewer than a block's tokens. The next chunk is planned as if all were right, and runs where its request is then.

    Attention writes of a step precede its reads, recurrent reads precede its writes.
    """
    words, begin, choice = state.words, state.settled(request), choice or arbitrary_choice()
    written, first, settled = choice.written, end - choice.drafts, choice.settled

    def one_state(entry: Entry) -> Formula:
        return z3.And(words.recurrent(entry.group), z3.Not(words.every_state(entry.group)))

    def row(entry: Entry) -> Term:
        return entry.column - words.ending(entry.group, end)

    def completed(entry: Entry) -> Formula:
        return z3.And(first <= words.column_end(entry), words.column_end(entry) <= settled)

    def target(entry: Entry) -> Formula:
        tokens_here = z3.And(words.column_start(entry) < end, words.column_end(entry) > begin)
        state_here = z3.Or(z3.And(0 <= row(entry), row(entry) <= choice.drafts), completed(entry))
        return z3.And(entry.request == request, z3.If(one_state(entry), state_here, tokens_here))

    def stores(entry: Entry) -> Formula:
        return z3.And(entry.request == request, choice.stored(entry))

    def is_output(entry: Entry) -> Formula:
        return z3.Or(target(entry), stores(entry))

    def upto(entry: Entry) -> Term:
        own_row = z3.And(one_state(entry), z3.Not(completed(entry)))
        return z3.If(stores(entry), choice.stored_at, z3.If(own_row, first + row(entry), words.upto(entry, settled)))

    def written_as(block: Term) -> Entry:
        return Entry(request, *choice.written_in(block))

    def is_written(entry: Entry, block: Term) -> Formula:
        return z3.Implies(z3.And(is_output(entry), state.table(entry) == block), written(block))

    def is_target(block: Term) -> Formula:
        entry = written_as(block)
        return z3.Implies(written(block), z3.And(is_output(entry), state.table(entry) == block))

    misread = Entry(request, *choice.misread)
    bad = z3.And(begin > 0, state.reads(misread), reads_badly(state, misread, begin))

    def shown(block: Term, key: Term) -> Formula:
        entry = written_as(block)
        made = z3.And(z3.Not(choice.wrong), upto(entry) <= settled, words.shows(entry, upto(entry), key))
        kept = z3.And(z3.Not(words.recurrent(entry.group)), state.last(block, key), words.extent(key) <= begin)
        return z3.If(written(block), z3.Or(made, kept), state.last(block, key))

    def room(entry: Entry) -> Formula:
        return z3.Implies(is_output(entry), state.table(entry) != words.null)

    def unhashed(entry: Entry) -> Formula:
        block = state.table(entry)
        none = z3.And(state.full_hash(block) == words.no_key, state.tail_hash(block) == words.no_key)
        return z3.Implies(z3.And(is_output(entry), words.recurrent(entry.group)), none)

    def stores_in_passing(entry: Entry) -> Formula:
        passed = z3.And(begin <= words.column_start(entry), words.column_end(entry) < first)
        return z3.Implies(stores(entry), z3.And(one_state(entry), passed))

    def stores_what_it_passes(entry: Entry) -> Formula:
        return z3.Implies(stores(entry), z3.And(begin < choice.stored_at, choice.stored_at < first))

    def no_drafts(entry: Entry) -> Formula:
        every_state = z3.And(words.recurrent(entry.group), words.every_state(entry.group))
        return z3.Implies(z3.And(entry.request == request, every_state), choice.drafts == 0)

    def stays_in_column(entry: Entry) -> Formula:
        half_way = z3.And(words.ending(entry.group, begin) == entry.column, begin < words.column_end(entry), begin > 0)
        own = z3.And(entry.request == request, one_state(entry))
        return z3.Implies(z3.And(own, half_way), first <= words.column_end(entry))

    def skipped_is_null(entry: Entry) -> Formula:
        skipped = z3.And(begin <= words.column_start(entry), words.column_end(entry) <= end, z3.Not(is_output(entry)))
        own = z3.And(entry.request == request, words.recurrent(entry.group))
        return z3.Implies(z3.And(own, skipped), state.table(entry) == words.null)

    guards = (
        guard("the request runs", z3.And(state.status(request) == RUNNING, z3.Not(state.withdrawn(request)))),
        guard("one chunk a step", z3.Not(state.in_step(request))),
        guard("at least one token that is no draft", z3.And(first > begin, choice.drafts >= 0)),
        Universal("there is room", (ENTRY,), room),
        Universal("a state that is cached is not overwritten", (ENTRY,), unhashed),
        Universal("a chunk does not leave its column half-way", (ENTRY,), stays_in_column),
        Universal("columns that a chunk skips are null", (ENTRY,), skipped_is_null),
        Universal("a checkpoint lies in a column that the chunk passes", (ENTRY,), stores_in_passing),
        Universal("a checkpoint is a state that the chunk passes", (ENTRY,), stores_what_it_passes),
        Universal("no drafts where every state is kept", (ENTRY,), no_drafts),
    )
    choices = (
        Universal("the chunk writes where its tokens end", (ENTRY, BLOCK), is_written),
        Universal("the chunk writes nowhere else", (BLOCK,), is_target),
        Universal("a chunk is wrong only if a read is", (), lambda: z3.Implies(choice.wrong, bad)),
        Universal("only drafts can be rejected", (), lambda: z3.And(first <= settled, settled <= end)),
    )

    def filled(entry: Entry) -> Term:
        scratch = z3.And(one_state(entry), z3.Not(completed(entry)), z3.Not(stores(entry)), choice.drafts > 0)
        drafts_only = z3.And(z3.Not(one_state(entry)), settled <= words.column_start(entry))
        made = z3.If(scratch, 0, upto(entry))
        return z3.If(z3.And(is_output(entry), z3.Not(drafts_only)), made, state.filled(entry))

    def state_column(entry: Entry) -> Term:
        running = words.ending(entry.group, end)
        accepted = z3.If(words.end(entry.group, running) == settled, running, running + settled - first)
        return z3.If(entry.request == request, accepted, state.state_column(entry))

    def writer_entry(block: Term) -> Entry:
        old, new = state.writer_entry(block), written_as(block)
        return Entry(
            z3.If(written(block), new.request, old.request),
            z3.If(written(block), new.group, old.group),
            z3.If(written(block), new.column, old.column),
        )

    pending = state.verified(request) < state.computed(request)
    after = attrs.evolve(
        state,
        last=shown,
        changed=lambda b: z3.Or(state.changed(b), written(b)),
        writer=lambda b: z3.If(written(b), request, state.writer(b)),
        writer_entry=writer_entry,
        reading=lambda b: z3.Or(state.reading(b), state.held(request, b) >= 1),
        filled=filled,
        checkpoint=lambda e: z3.Or(state.checkpoint(e), stores(e)),
        state_column=state_column,
        read_column=lambda e: z3.If(e.request == request, state.state_column(e), state.read_column(e)),
        computed=at(state.computed, request, state.computed(request) + end - begin),
        settled=at(state.settled, request, settled),
        verified=at(state.verified, request, z3.If(pending, state.verified(request), first)),
        since=at(state.since, request, begin),
        in_step=at(state.in_step, request, z3.BoolVal(True)),
    )
    terms = {ENTRY: (misread,), BLOCK: (state.table(misread),), BOUNDARY: (begin, choice.stored_at, settled)}
    return Transition(guards, after, choices, terms, entries_of=lambda block: (written_as(block),))


def reads_badly(state: State, entry: Entry, boundary: Term) -> Formula:
    """What runs from `boundary` on does not find in the entry what it needs."""
    words, block = state.words, state.table(entry)
    state_read = state.seen(block, words.key_of(entry, boundary))
    attention_read = state.last(block, words.key_of(entry, words.upto(entry, boundary)))
    right = z3.If(words.recurrent(entry.group), state_read, attention_read)
    return z3.Or(block == words.null, z3.Not(right))


def verify_drafts(state: State, request: Term, computed: Term, verified: Term) -> Transition:
    """A step that ran some has executed. What was rejected counts no more; drafts of later steps are still to be
    verified."""
    settled = state.settled(request)
    counts = z3.And(settled <= computed, computed <= state.computed(request))
    right = z3.And(state.verified(request) <= verified, verified <= settled)
    guards = (
        guard("some token is a draft", state.verified(request) < state.computed(request)),
        guard("nothing counts twice, and what is right counts", counts),
        guard("only what is right is verified", right),
    )
    after = attrs.evolve(
        state,
        computed=at(state.computed, request, computed),
        verified=at(state.verified, request, verified),
    )
    return Transition(guards, after)


def publish_full(state: State, entry: Entry, block: Term) -> Transition:
    """Only what the code knows is in the guards: that the column is non-null, its tokens are computed, and none of them
    is a draft that may be rejected. That may be in the step of the chunk, after a load, or once a token is known that
    was run before it was."""
    words, request = state.words, entry.request
    when = z3.Or(state.status(request) == RUNNING, state.status(request) == LOADED)
    guards = (
        guard("the block is in the table", z3.And(state.table(entry) == block, block != words.null)),
        guard("the request runs, or its load has ended", z3.And(when, z3.Not(state.withdrawn(request)))),
        guard("the column's tokens are computed", words.column_end(entry) <= state.verified(request)),
        guard("the block has no full hash", state.full_hash(block) == words.no_key),
        guard("the column has no checkpoint", z3.Not(state.checkpoint(entry))),
        sought_by_nobody(state, block),
    )
    key = words.key_of(entry, words.column_end(entry))
    after = attrs.evolve(
        state,
        full_hash=at(state.full_hash, block, key),
        tail_hash=at(state.tail_hash, block, words.no_key),
        fresh_full=at(state.fresh_full, block, state.changed(block)),
    )
    return Transition(guards, after, terms={KEY: (key,)})


def publish_checkpoint(state: State, entry: Entry, block: Term) -> Transition:
    """For its own boundary, be that the end of a block or inside one."""
    words, boundary = state.words, state.filled(entry)
    runs = z3.And(state.status(entry.request) == RUNNING, z3.Not(state.withdrawn(entry.request)))
    guards = (
        guard("the block is in the table", z3.And(state.table(entry) == block, block != words.null)),
        guard("the request runs", runs),
        guard("the column has a checkpoint", state.checkpoint(entry)),
        guard("the block has no full hash", state.full_hash(block) == words.no_key),
        sought_by_nobody(state, block),
    )
    key, whole = words.key_of(entry, boundary), words.end(entry.group, words.ending(entry.group, boundary)) == boundary
    after = attrs.evolve(
        state,
        full_hash=at(state.full_hash, block, z3.If(whole, key, words.no_key)),
        tail_hash=at(state.tail_hash, block, z3.If(whole, words.no_key, key)),
        fresh_full=at(state.fresh_full, block, state.changed(block)),
        fresh_tail=at(state.fresh_tail, block, state.changed(block)),
    )
    return Transition(guards, after, terms={BOUNDARY: (boundary,), KEY: (key,)})


def publish_tail(state: State, entry: Entry, block: Term, boundary: Term) -> Transition:
    """A recurrent state is that of the boundary only if a chunk without drafts ends there. Attention may be
    beyond it, even full: then the tail is an alias."""
    words, request = state.words, entry.request
    computed = state.computed(request)
    when = z3.Or(state.status(request) == RUNNING, state.status(request) == LOADED)
    state_there = z3.And(boundary == computed, state.filled(entry) == computed)
    there = z3.If(words.recurrent(entry.group), state_there, boundary <= state.verified(request))
    inside = z3.And(words.column_start(entry) < boundary, boundary < words.column_end(entry))
    guards = (
        guard("the block is in the table", z3.And(state.table(entry) == block, block != words.null)),
        guard("the request runs, or its load has ended", z3.And(when, z3.Not(state.withdrawn(request)))),
        guard("the boundary is inside the column", inside),
        guard("the boundary is computed", there),
        sought_by_nobody(state, block),
    )
    key = words.key_of(entry, boundary)
    after = attrs.evolve(
        state,
        tail_hash=at(state.tail_hash, block, key),
        fresh_tail=at(state.fresh_tail, block, state.changed(block)),
    )
    return Transition(guards, after, terms={BOUNDARY: (computed, state.filled(entry)), KEY: (key,)})


def _copied(state: State, source: Term, target: Term) -> State:
    """Source and target stay referenced until the step that copies is committed."""
    copies, before, null = state.copies, state.copy_of(target), state.words.null
    return attrs.evolve(
        state,
        seen=content_at(state.seen, target, lambda k: state.seen(source, k)),
        last=content_at(state.last, target, lambda k: state.seen(source, k)),
        changed=at(state.changed, target, z3.BoolVal(True)),
        copy_of=at(state.copy_of, target, source),
        copies=lambda b: copies(b) + one_if(source == b) - one_if(z3.And(before == b, b != null)),
        reading=at(state.reading, source, z3.BoolVal(True)),
    )


def copy_for_reader(state: State, entry: Entry, source: Term, target: Term, boundary: Term) -> Transition:
    """A hit that ends inside a block: the reader gets a private copy, which it may continue. Attention that was found
    up to a boundary, or in full, is copied for a shorter one as well (`SpecView.tables` in model/lookup.py)."""
    words = state.words
    copied = _copied(state, source, target).with_refs((source, 1), (target, 1))
    after = attrs.evolve(
        copied,
        filled=at_entry(state.filled, entry, boundary),
        found=at_entry(state.found, entry, words.null),
    )
    covered = z3.If(words.recurrent(entry.group), boundary == state.found_at(entry), boundary <= state.found_at(entry))
    inside = z3.And(words.column_start(entry) < boundary, boundary < words.column_end(entry))
    untouched = z3.And(state.filled(entry) == 0, z3.Not(state.awaits(entry)), state.copy_of(target) == words.null)
    guards = (
        guard("the block was found", z3.And(state.found(entry) == source, source != words.null)),
        guard("the hit ends inside the block", inside),
        guard("what was found covers the hit", covered),
        guard("a block that was taken for it", z3.And(state.table(entry) == target, target != words.null, untouched)),
        guard("the target is not cached", _unhashed(state, target)),
        guard("nothing of this step", z3.Not(z3.Or(state.fresh_tail(source), state.fresh_full(source)))),
        guard("no copy of a copy", z3.And(state.copy_of(source) == words.null, state.copies(target) == 0)),
        guard(
            "the request is being admitted",
            z3.And(state.status(entry.request) == IDLE, z3.Not(state.withdrawn(entry.request))),
        ),
    )
    return Transition(guards, after, terms={BOUNDARY: (state.found_at(entry),)})


def _unhashed(state: State, block: Term) -> Formula:
    words = state.words
    return z3.And(state.full_hash(block) == words.no_key, state.tail_hash(block) == words.no_key)


def copy_for_producer(state: State, entry: Entry, source: Term, target: Term) -> Transition:
    """The running request keeps its block and overwrites it; the tail's hash moves to a copy that nobody owns."""
    words = state.words
    moved = _copied(state, source, target).with_refs((source, 1), (target, 1))
    tail = state.tail_hash(source)
    when = z3.Or(state.status(entry.request) == RUNNING, state.status(entry.request) == LOADED)
    after = attrs.evolve(
        moved,
        full_hash=at(state.full_hash, target, words.no_key),
        tail_hash=at(at(state.tail_hash, target, tail), source, words.no_key),
        fresh_tail=at(state.fresh_tail, target, z3.BoolVal(True)),
    )
    guards = (
        guard("the request runs, or its load has ended", z3.And(when, z3.Not(state.in_step(entry.request)))),
        guard("its block has a tail", z3.And(state.table(entry) == source, source != words.null, tail != words.no_key)),
        guard("its block is not full", state.full_hash(source) == words.no_key),
        guard("a free block of the pool", z3.And(target != words.null, state.refs(target) == 0, target != source)),
        guard("no tail of this step", z3.Not(state.fresh_tail(source))),
        guard("no copy of a copy", z3.And(state.copy_of(source) == words.null, state.copy_of(target) == words.null)),
        sought_by_nobody(state, source, "source"),
        sought_by_nobody(state, target, "target"),
    )
    return Transition(guards, after)


def relocate(state: State, entry: Entry, destination: Entry) -> Transition:
    """A scratch block moves to another column of its group."""
    words, block = state.words, state.table(entry)
    same = z3.And(entry.request == destination.request, entry.group == destination.group)
    scratch = z3.And(block != words.null, state.filled(entry) == 0, z3.Not(state.awaits(entry)))
    guards = (
        guard("the request runs", z3.And(state.status(entry.request) == RUNNING, z3.Not(state.in_step(entry.request)))),
        guard("a scratch block", scratch),
        guard("not where the state lies", entry.column != state.state_column(entry)),
        guard("an empty column", z3.And(same, state.table(destination) == words.null)),
        guard("beyond what is computed", words.column_start(destination) >= state.computed(entry.request)),
    )
    return Transition(guards, state.with_table((destination, block), (entry, words.null)))


def retire(state: State, entry: Entry, block: Term) -> Transition:
    words, request = state.words, entry.request
    verified = state.verified(request)
    unseen = z3.And(z3.Not(words.sees_entry(entry, verified)), words.column_end(entry) <= verified)
    guards = (
        guard("the block is in the table", z3.And(state.table(entry) == block, block != words.null)),
        guard("the request runs", state.status(request) == RUNNING),
        guard("not after the chunk of this step", z3.Not(state.in_step(request))),
        guard("no later token reads it", unseen),
    )
    after = state.with_table((entry, words.null)).with_refs((block, -1))
    after = attrs.evolve(
        after,
        filled=at_entry(state.filled, entry, z3.IntVal(0)),
        checkpoint=at_entry(state.checkpoint, entry, z3.BoolVal(False)),
    )
    return Transition(guards, after, terms={BOUNDARY: (verified,)})


ACTIONS = (
    Action("forward chunk", (REQUEST, BOUNDARY), forward, "schedule, execute_model, preprocess_mamba"),
    Action(
        "verify drafts",
        (REQUEST, BOUNDARY, BOUNDARY),
        verify_drafts,
        "update_from_output: num_computed_tokens -= num_rejected",
    ),
    Action("publish full", (ENTRY, BLOCK), publish_full, "BlockPool.cache_full_blocks"),
    Action("publish checkpoint", (ENTRY, BLOCK), publish_checkpoint, "cache_blocks with prefill checkpoints"),
    Action("publish tail", (ENTRY, BLOCK, BOUNDARY), publish_tail, "_cache_partial_tail_block"),
    Action("copy for reader", (ENTRY, BLOCK, BLOCK, BOUNDARY), copy_for_reader, "_apply_cow"),
    Action("copy for producer", (ENTRY, BLOCK, BLOCK), copy_for_producer, "BlockPool.move_block_hashes"),
    Action("relocate", (ENTRY, ENTRY), relocate, "MambaManager._relocate_speculative_block"),
    Action("retire", (ENTRY, BLOCK), retire, "remove_skipped_blocks"),
)
