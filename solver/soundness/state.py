"""The state of the cache as functions of arbitrary blocks, requests, entries and keys.

Content is what a block shows: of which keys it holds what they promise. There are three contents per block, because
steps are planned ahead of their execution: `now` in memory; `seen` by the reads of the step under construction, after
all steps committed before it and after its own wipes, copies and loads; `last` after the writes of this step too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import z3

from solver.soundness.terms import BLOCK, ENTRY, KEY, REQUEST, Universal
from solver.soundness.vocabulary import BLOCK_SORT, GROUP_SORT, KEY_SORT, REQUEST_SORT, Entry, Formula, Term, Vocabulary

IDLE, RUNNING, LOADING, LOADED = range(4)
"""Status of a request: waiting, being admitted or ended; running; its asynchronous load is awaited; has ended."""

STATUS_WORDS = {IDLE: "idle", RUNNING: "running", LOADING: "loading", LOADED: "loaded"}

OfBlock = Callable[[Term], Any]
OfEntry = Callable[[Entry], Any]
OfRequest = Callable[[Term], Any]
Content = Callable[[Term, Term], Formula]


@attrs.frozen(eq=False, kw_only=True)
class State:
    """Blocks first, then entries of block tables, then requests.

    `full_hash` and `tail_hash` are the keys a block is cached under: its full hash, and a shorter one for a partial
    tail. `fresh_full` and `fresh_tail` mark those published by the step under construction. `changed`: this step writes
    the block; `writer` is the request whose forward does, as `writer_entry`. `reading`: this step reads it.
    `queued_writes` and `queued_reads` count committed steps that will. `copies` counts this step's copies out of it,
    `copy_of` is the block that this step copies into it; `queued_copies` counts the references that copies of committed
    steps still hold. `saves` counts pending saves, for `saved_key`. `loading`: an
    asynchronous load is writing it, for `loader`.

    `filled` is the boundary up to which the entry's block was made what its request needs; `awaits`: a load will.
    `checkpoint`: the block holds the state at `filled`, which a chunk stored on its way, in whatever column.
    `found` is the block that an outstanding lookup found for the entry, at boundary `found_at`. `computed` counts
    tokens whose steps are planned, drafts among them; up to `settled` they turn out to be right, and up to `verified`
    that is known. `state_column` is where the recurrent state of the settled tokens lies, in the entry's request and
    group; `read_column` is where the chunk of this step reads its own, and `since` is where it starts. `withdrawn`:
    what the request holds counts for nothing. `holders` and `held` are how many entries, of all or of one request, name
    a block; they are not bookkeeping of the engine but derived from `table`.
    """

    words: Vocabulary
    refs: OfBlock
    full_hash: OfBlock
    tail_hash: OfBlock
    fresh_full: OfBlock
    fresh_tail: OfBlock
    now: Content
    seen: Content
    last: Content
    changed: OfBlock
    reading: OfBlock
    writer: OfBlock
    writer_entry: Callable[[Term], Entry]
    queued_writes: OfBlock
    queued_reads: OfBlock
    copies: OfBlock
    copy_of: OfBlock
    queued_copies: OfBlock
    saves: OfBlock
    saved_key: OfBlock
    loading: OfBlock
    loader: Callable[[Term], Entry]
    table: OfEntry
    filled: OfEntry
    awaits: OfEntry
    checkpoint: OfEntry
    found: OfEntry
    found_at: OfEntry
    state_column: OfEntry
    read_column: OfEntry
    status: OfRequest
    computed: OfRequest
    settled: OfRequest
    verified: OfRequest
    since: OfRequest
    in_step: OfRequest
    withdrawn: OfRequest
    holders: OfBlock
    held: Callable[[Term, Term], Any]

    def whole_at(self, entry: Entry) -> Any:
        """Boundary at which the entry's block is full: the end of its column, or that of the checkpoint in it."""
        return z3.If(self.checkpoint(entry), self.filled(entry), self.words.column_end(entry))

    def reads(self, entry: Entry) -> Formula:
        """Whether what runs from the settled tokens of its request on reads the entry."""
        settled = self.settled(entry.request)
        state_here = z3.And(settled >= 1, entry.column == self.state_column(entry))
        return z3.If(self.words.recurrent(entry.group), state_here, self.words.sees_entry(entry, settled))

    def with_progress(self, request: Term, tokens: Term) -> State:
        """The state with `tokens` computed of a request, none of them a draft."""
        return attrs.evolve(
            self,
            computed=at(self.computed, request, tokens),
            settled=at(self.settled, request, tokens),
            verified=at(self.verified, request, tokens),
        )

    def with_table(self, *changes: tuple[Entry, Term]) -> State:
        """The state with entries naming other blocks, one after another; how often blocks are named follows."""
        state = self
        for entry, block in changes:
            state = state._with_entry(entry, block)
        return state

    def _with_entry(self, entry: Entry, block: Term) -> State:
        before, holders, held = self.table(entry), self.holders, self.held

        def difference(where: Term) -> Any:
            return one_if(where == block) - one_if(where == before)

        return attrs.evolve(
            self,
            table=at_entry(self.table, entry, block),
            holders=lambda b: holders(b) + difference(b),
            held=lambda r, b: held(r, b) + z3.If(r == entry.request, difference(b), 0),
        )

    def with_refs(self, *changes: tuple[Term, int]) -> State:
        """The state with more or fewer references to some blocks."""
        state = self
        for block, more in changes:
            state = attrs.evolve(state, refs=at(state.refs, block, state.refs(block) + more))
        return state

    def without_tables_of(self, request: Term) -> State:
        """The state after all entries of `request` were emptied and their references dropped."""
        refs, holders, held = self.refs, self.holders, self.held

        def emptied(old: OfEntry, value: Any) -> OfEntry:
            return lambda e: z3.If(e.request == request, value, old(e))

        return attrs.evolve(
            self,
            table=lambda e: z3.If(e.request == request, self.words.null, self.table(e)),
            filled=emptied(self.filled, z3.IntVal(0)),
            awaits=emptied(self.awaits, z3.BoolVal(False)),
            checkpoint=emptied(self.checkpoint, z3.BoolVal(False)),
            refs=lambda b: refs(b) - held(request, b),
            holders=lambda b: holders(b) - held(request, b),
            held=lambda r, b: z3.If(r == request, 0, held(r, b)),
        )


def at(old: Callable[..., Any], where: Term, value: Any) -> Callable[..., Any]:
    """The function with one value changed."""
    return lambda x: z3.If(x == where, value, old(x))


def at_entry(old: OfEntry, where: Entry, value: Any) -> OfEntry:
    """The function of entries with one value changed."""
    return lambda e: z3.If(e.is_entry(where), value, old(e))


def content_at(old: Content, where: Term, shown: Callable[[Term], Any]) -> Content:
    """The content with that of one block changed."""
    return lambda b, k: z3.If(b == where, shown(k), old(b, k))


def one_if(condition: Formula) -> Any:
    return z3.If(condition, 1, 0)


def symbolic_state(words: Vocabulary) -> State:
    """An arbitrary state."""
    block, entry, request = (BLOCK_SORT,), (REQUEST_SORT, GROUP_SORT, z3.IntSort()), (REQUEST_SORT,)
    number, truth = z3.IntSort(), z3.BoolSort()
    request_group = (REQUEST_SORT, GROUP_SORT)

    def of(name: str, *sorts: Any) -> Any:
        return z3.Function(name, *sorts)

    def of_entry(name: str, result: Any) -> OfEntry:
        function = of(name, *entry, result)
        return lambda e: function(e.request, e.group, e.column)

    def column_of(name: str) -> OfEntry:
        function = of(name, *request_group, number)
        return lambda e: function(e.request, e.group)

    def entry_of(name: str) -> Callable[[Term], Entry]:
        parts = [of(f"{name} {part}", *block, sort) for part, sort in zip(("r", "g", "c"), entry, strict=True)]
        return lambda b: Entry(*(part(b) for part in parts))

    return State(
        words=words,
        refs=of("refs", *block, number),
        full_hash=of("full hash", *block, KEY_SORT),
        tail_hash=of("tail hash", *block, KEY_SORT),
        fresh_full=of("fresh full hash", *block, truth),
        fresh_tail=of("fresh tail hash", *block, truth),
        now=of("shows now", *block, KEY_SORT, truth),
        seen=of("shows this step's reads", *block, KEY_SORT, truth),
        last=of("shows last", *block, KEY_SORT, truth),
        changed=of("changed in this step", *block, truth),
        reading=of("read in this step", *block, truth),
        writer=of("writer", *block, REQUEST_SORT),
        writer_entry=entry_of("written as"),
        queued_writes=of("queued writes", *block, number),
        queued_reads=of("queued reads", *block, number),
        copies=of("copies out of", *block, number),
        copy_of=of("copied from", *block, BLOCK_SORT),
        queued_copies=of("held by queued copies", *block, number),
        saves=of("pending saves", *block, number),
        saved_key=of("saved key", *block, KEY_SORT),
        loading=of("loading", *block, truth),
        loader=entry_of("loaded as"),
        table=of_entry("table", BLOCK_SORT),
        filled=of_entry("filled up to", number),
        awaits=of_entry("awaits a load", truth),
        checkpoint=of_entry("holds a checkpoint", truth),
        found=of_entry("found", BLOCK_SORT),
        found_at=of_entry("found at", number),
        state_column=column_of("state lies in column"),
        read_column=column_of("state is read in column"),
        status=of("status", *request, number),
        computed=of("computed", *request, number),
        settled=of("settled", *request, number),
        verified=of("verified", *request, number),
        since=of("chunk starts at", *request, number),
        in_step=of("in this step", *request, truth),
        withdrawn=of("withdrawn", *request, truth),
        holders=of("holders", *block, number),
        held=of("held by", *request, *block, number),
    )


def cardinality_laws(state: State) -> tuple[Universal, ...]:
    """What counts have to do with what they count: they are sums, over any number of entries, requests and copies. Of
    the null block nothing is counted."""

    null = state.words.null

    def counted(entry: Entry, block: Term) -> Formula:
        named = z3.And(state.table(entry) == block, block != null)
        return z3.Implies(named, state.held(entry.request, block) >= 1)

    def part(request: Term, block: Term) -> Formula:
        held = state.held(request, block)
        return z3.Implies(block != null, z3.And(held >= 0, state.holders(block) >= held))

    def two_entries(one: Entry, other: Entry, block: Term) -> Formula:
        both = z3.And(state.table(one) == block, state.table(other) == block, z3.Not(one.is_entry(other)))
        same = z3.And(one.request == other.request, block != null)
        return z3.Implies(z3.And(both, same), state.held(one.request, block) >= 2)

    def two_requests(one: Term, other: Term, block: Term) -> Formula:
        together = state.held(one, block) + state.held(other, block)
        return z3.Implies(z3.And(one != other, block != null), state.holders(block) >= together)

    def copied(target: Term, source: Term) -> Formula:
        copied = z3.And(state.copy_of(target) == source, source != null)
        return z3.Implies(copied, state.copies(source) >= 1)

    return (
        Universal("cardinality: who names a block holds it", (ENTRY, BLOCK), counted),
        Universal("cardinality: the holders include one request's", (REQUEST, BLOCK), part),
        Universal("cardinality: two entries are two", (ENTRY, ENTRY, BLOCK), two_entries),
        Universal("cardinality: two requests hold what they hold", (REQUEST, REQUEST, BLOCK), two_requests),
        Universal("cardinality: a copy is counted at its source", (BLOCK, BLOCK), copied),
    )


def initial_state(words: Vocabulary) -> State:
    """The engine with an empty cache and no requests."""
    no, zero = z3.BoolVal(False), z3.IntVal(0)
    nowhere = Entry(words.nobody, words.some_group, zero)
    return State(
        words=words,
        refs=lambda _: zero,
        full_hash=lambda _: words.no_key,
        tail_hash=lambda _: words.no_key,
        fresh_full=lambda _: no,
        fresh_tail=lambda _: no,
        now=lambda *_: no,
        seen=lambda *_: no,
        last=lambda *_: no,
        changed=lambda _: no,
        reading=lambda _: no,
        writer=lambda _: words.nobody,
        writer_entry=lambda _: nowhere,
        queued_writes=lambda _: zero,
        queued_reads=lambda _: zero,
        copies=lambda _: zero,
        copy_of=lambda _: words.null,
        queued_copies=lambda _: zero,
        saves=lambda _: zero,
        saved_key=lambda _: words.no_key,
        loading=lambda _: no,
        loader=lambda _: nowhere,
        table=lambda _: words.null,
        filled=lambda _: zero,
        awaits=lambda _: no,
        checkpoint=lambda _: no,
        found=lambda _: words.null,
        found_at=lambda _: zero,
        state_column=lambda _: zero,
        read_column=lambda _: zero,
        status=lambda _: z3.IntVal(IDLE),
        computed=lambda _: zero,
        settled=lambda _: zero,
        verified=lambda _: zero,
        since=lambda _: zero,
        in_step=lambda _: no,
        withdrawn=lambda _: no,
        holders=lambda _: zero,
        held=lambda *_: zero,
    )


FIELDS = {
    (BLOCK,): (
        *("refs", "full_hash", "tail_hash", "fresh_full", "fresh_tail", "changed", "reading", "writer", "loading"),
        *("queued_writes", "queued_reads", "queued_copies", "copies", "copy_of", "saves", "saved_key"),
    ),
    (BLOCK, KEY): ("now", "seen", "last"),
    (ENTRY,): ("table", "filled", "awaits", "checkpoint", "found", "found_at", "state_column", "read_column"),
    (REQUEST,): ("status", "computed", "settled", "verified", "since", "in_step", "withdrawn"),
}
"""Kinds of argument -> fields of a state, but for the derived counts and for which entry writes or loads a block."""
