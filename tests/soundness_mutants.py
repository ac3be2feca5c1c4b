"""Faults of the cache as changed transitions: a guard dropped, or an update left out or wrong.

Each names the cell that has to fall, and the invariant, if any, that implies the guard and is dropped with it.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import z3

from solver.soundness.cells import ACTIONS
from solver.soundness.state import LOADING, State, at, one_if
from solver.soundness.stepping import arbitrary_loss
from solver.soundness.terms import BLOCK, ENTRY, Universal
from solver.soundness.transition import Action, Transition
from solver.soundness.vocabulary import Entry, Formula, Term

BY_NAME = {action.name: action for action in ACTIONS}


@attrs.frozen(eq=False)
class Fault:
    """`falls` is an invariant that the changed action no longer keeps, without `dropped` among what is assumed."""

    name: str
    action: Action
    falls: str
    dropped: tuple[str, ...] = ()


IMPLIED = {
    ("look up", "a block of the pool"): "the null block is not cached, so nothing is found there",
    ("drop lookup", "something was found"): "to drop nothing changes nothing",
    ("touch", "the request is being admitted"): "an outstanding lookup is of a request being admitted",
    ("publish full", "the block has no full hash"): "a block with a full hash is held where its hash says",
    (
        "copy for reader",
        "the request is being admitted",
    ): "an outstanding lookup is of a request being admitted",
    ("copy for producer", "the request runs, or its load has ended"): "to copy a tail early harms nobody",
    ("copy for producer", "its block is not full"): "to move the tail of a full block harms nobody",
    ("copy for producer", "no copy of a copy"): "a copy of this step has a fresh tail, and a free block is no copy",
    ("verify drafts", "some token is a draft"): "to verify nothing changes nothing",
    ("load begins", "not begun before"): "an entry has one load, and to begin it again spoils nothing",
    ("abort loading", "the request waits for its load"): "what is withdrawn is relied on less",
}
"""Guards that can be dropped alone without any cell failing, and why."""


def without_guards(name: str, *guards: str) -> Action:
    action = BY_NAME[name]

    def build(state: State, *arguments: object) -> Transition:
        transition = action.build(state, *arguments)
        kept = tuple(guard for guard in transition.guards if guard.name not in guards)
        assert len(kept) == len(transition.guards) - len(guards), f"{name} has no such guard"
        return attrs.evolve(transition, guards=kept)

    return attrs.evolve(action, build=build)


def _with_after(name: str, change: Callable[..., State]) -> Action:
    """`change` gets the state before, the state after and the arguments."""
    action = BY_NAME[name]

    def build(state: State, *arguments: object) -> Transition:
        transition = action.build(state, *arguments)
        return attrs.evolve(transition, after=change(state, transition.after, *arguments))

    return attrs.evolve(action, build=build)


def _with_drafts_taken_for_right(name: str) -> Action:
    """What is done only with verified tokens is done with all that are computed."""
    action = BY_NAME[name]

    def build(state: State, *arguments: object) -> Transition:
        transition = action.build(attrs.evolve(state, verified=state.computed), *arguments)
        return attrs.evolve(transition, after=attrs.evolve(transition.after, verified=state.verified))

    return attrs.evolve(action, build=build)


def _not_copied_back(before: State, after: State, request: Term, end: Term) -> State:
    """The state at a column's end stays in the scratch block of the draft that reached it."""

    def last(block: Term, key: Term) -> Formula:
        entry = after.writer_entry(block)
        own = z3.And(after.writer(block) == request, before.words.recurrent(entry.group))
        earlier = z3.And(own, entry.column < before.words.ending(entry.group, end), z3.Not(after.checkpoint(entry)))
        kept = z3.And(earlier, z3.Not(before.words.every_state(entry.group)))
        return z3.If(kept, before.last(block, key), after.last(block, key))

    return attrs.evolve(after, last=last)


def _goes_on_from_the_running_block(before: State, after: State, request: Term, end: Term) -> State:
    def column(entry: Entry) -> Term:
        own = entry.request == request
        return z3.If(own, before.words.ending(entry.group, end), after.state_column(entry))

    return attrs.evolve(after, state_column=column)


def _hashes_stay(before: State, after: State, *_: object) -> State:
    return attrs.evolve(after, full_hash=before.full_hash, tail_hash=before.tail_hash)


def _key_of_computed(before: State, after: State, entry: Entry, block: Term) -> State:
    key = before.words.key_of(entry, before.computed(entry.request))
    return attrs.evolve(after, full_hash=at(before.full_hash, block, key))


def _key_of_next_column(before: State, after: State, entry: Entry, block: Term) -> State:
    words = before.words
    key = words.key_of(entry, words.end(entry.group, entry.column + 1))
    return attrs.evolve(after, full_hash=at(before.full_hash, block, key))


def _another_block(before: State, after: State, entry: Entry, block: Term) -> State:
    words = before.words
    other = before.table(Entry(entry.request, entry.group, entry.column + 1))
    key = words.key_of(entry, words.column_end(entry))
    return attrs.evolve(after, full_hash=at(before.full_hash, other, key))


def _half_way_block_unwritten(before: State, after: State, request: Term, end: Term) -> State:
    """A block in which the chunk begins half-way does not get the state at its end."""
    words, begin = before.words, before.computed(request)

    def last(block: Term, key: Term) -> Formula:
        entry = after.writer_entry(block)
        half_way = z3.And(words.column_start(entry) < begin, begin < words.column_end(entry))
        passed = z3.And(half_way, words.column_end(entry) < end, words.every_state(entry.group))
        return z3.If(z3.And(after.writer(block) == request, passed), before.last(block, key), after.last(block, key))

    return attrs.evolve(after, last=last)


def _not_copied(before: State, after: State, *_: object) -> State:
    return attrs.evolve(after, seen=before.seen, last=before.last)


def _not_referenced(before: State, after: State, *_: object) -> State:
    return attrs.evolve(after, refs=before.refs)


def _released_at_once(before: State, after: State, *_: object) -> State:
    def refs(block: Term) -> Term:
        return before.refs(block) - before.copies(block) - one_if(before.copy_of(block) != before.words.null)

    return attrs.evolve(after, refs=refs)


def _loss_that_spares(spared: Callable[[State, Entry], Formula]) -> Action:
    """A lost step after which some holders of spoilt blocks go on."""
    action = BY_NAME["lose step"]

    def build(state: State) -> Transition:
        loss = arbitrary_loss()
        transition = action.build(state)

        def rolled_back(entry: Entry, block: Term) -> Formula:
            holds = z3.And(loss.spoilt(block), block != state.words.null, state.table(entry) == block)
            goes = z3.Or(loss.withdrawn(entry.request), loss.rolled_back(entry.request))
            return z3.Implies(z3.And(holds, z3.Not(spared(state, entry))), goes)

        kept = tuple(guard for guard in transition.guards if guard.name != "holders of spoilt blocks go back")
        weaker = Universal("some holders of spoilt blocks go back", (ENTRY, BLOCK), rolled_back)
        return attrs.evolve(transition, guards=(*kept, weaker))

    return attrs.evolve(action, build=build)


def _only_reads_it(state: State, entry: Entry) -> Formula:
    return state.filled(entry) == state.words.column_end(entry)


def _writes_it(state: State, entry: Entry) -> Formula:
    return state.filled(entry) < state.words.column_end(entry)


def _is_loading(state: State, entry: Entry) -> Formula:
    return state.status(entry.request) == LOADING


FAULTS = (
    Fault("eviction without unhashing", _with_after("allocate", _hashes_stay), "full hash is content"),
    Fault("hit in the same step", without_guards("touch", "no state of this step"), "state is visible"),
    Fault(
        "write over an alias",
        without_guards("forward chunk", "a state that is cached is not overwritten"),
        "tail hash is content",
    ),
    Fault(
        "write while shared",
        BY_NAME["forward chunk"],
        "delivered",
        ("open is owned", "shared is hashed", "hash is position"),
    ),
    Fault(
        "publish with the key of the computed tokens",
        _with_after("publish full", _key_of_computed),
        "full hash is content",
    ),
    Fault(
        "publish with the key of the next column",
        _with_after("publish full", _key_of_next_column),
        "full hash is content",
    ),
    Fault("publish another block", _with_after("publish full", _another_block), "full hash is content"),
    Fault(
        "publish a column that is not computed",
        without_guards("publish full", "the column's tokens are computed"),
        "full hash is content",
    ),
    Fault(
        "publish a state that a chunk passed over",
        BY_NAME["publish full"],
        "full hash is content",
        ("passed columns are full",),
    ),
    Fault(
        "checkpoint cached for the end of its column",
        without_guards("publish full", "the column has no checkpoint"),
        "full hash is content",
    ),
    Fault(
        "checkpoint in the column from which the chunk starts",
        without_guards("forward chunk", "a checkpoint lies in a column that the chunk passes"),
        "checkpoint is behind",
    ),
    Fault(
        "checkpoint of a boundary that the chunk does not pass",
        without_guards("forward chunk", "a checkpoint is a state that the chunk passes"),
        "fill is bounded",
    ),
    Fault(
        "state that a chunk passed, cached as a checkpoint",
        without_guards("publish checkpoint", "the column has a checkpoint"),
        "hash is position",
    ),
    Fault(
        "published with drafts that may be rejected",
        _with_drafts_taken_for_right("publish full"),
        "full hash is content",
    ),
    Fault(
        "tail published with drafts that may be rejected",
        _with_drafts_taken_for_right("publish tail"),
        "tail hash is content",
    ),
    Fault("saved with drafts that may be rejected", _with_drafts_taken_for_right("save begins"), "save reads its key"),
    Fault("retired for drafts that may be rejected", _with_drafts_taken_for_right("retire"), "needs are held"),
    Fault(
        "rejected drafts that are taken back twice",
        without_guards("verify drafts", "nothing counts twice, and what is right counts"),
        "drafts are ahead",
    ),
    Fault(
        "rejected drafts that count as verified",
        without_guards("verify drafts", "only what is right is verified"),
        "drafts are ahead",
    ),
    Fault(
        "state of an accepted draft that is not copied back",
        _with_after("forward chunk", _not_copied_back),
        "delivered",
    ),
    Fault(
        "request that goes on from its running block although a draft was right",
        _with_after("forward chunk", _goes_on_from_the_running_block),
        "state lies there",
    ),
    Fault(
        "drafts where every state is kept",
        without_guards("forward chunk", "no drafts where every state is kept"),
        "state lies there",
    ),
    Fault(
        "state of an accepted draft that moves with its scratch block",
        without_guards("relocate", "not where the state lies"),
        "needs are held",
    ),
    Fault("two chunks in one step", without_guards("forward chunk", "one chunk a step"), "chunk reads its state"),
    Fault(
        "chunk that leaves its column half-way",
        without_guards("forward chunk", "a chunk does not leave its column half-way"),
        "passed columns are full",
    ),
    Fault(
        "a block that no chunk completes, where every state is kept (#34587)",
        _with_after("forward chunk", _half_way_block_unwritten),
        "delivered",
    ),
    Fault(
        "allocate before touch",
        without_guards("allocate", "no outstanding lookup found the block"),
        "lookup stands",
    ),
    Fault(
        "touch what is cached for something else by now",
        BY_NAME["touch"],
        "delivered",
        ("lookup stands",),
    ),
    Fault("touch without a reference", _with_after("touch", _not_referenced), "references"),
    Fault("allocate a referenced block", without_guards("allocate", "a free block of the pool"), "delivered"),
    Fault(
        "save before commit",
        without_guards("save begins", "the step under construction does not write the block"),
        "save reads its key",
    ),
    Fault("save without a pin", _with_after("save begins", _not_referenced), "references"),
    Fault("unpinned load", without_guards("free", "no load is under way"), "load is pinned"),
    Fault(
        "load into a block with a queued write of its former owner",
        without_guards("load begins", "no step is going to write the block"),
        "loading is alone",
    ),
    Fault(
        "load into a block that a step is going to read",
        without_guards("load begins", "no step is going to read the block"),
        "loading is alone",
    ),
    Fault("preempted in the step, hashes kept", _with_after("preempt in step", _hashes_stay), "full hash is content"),
    Fault(
        "preempted in the step although others rely on it",
        without_guards("preempt in step", "nobody else relies on what it was to write"),
        "delivered",
    ),
    Fault("lost step, hashes stay", _with_after("lose step", _hashes_stay), "full hash is content"),
    Fault("lost step, readers stay", _loss_that_spares(_only_reads_it), "delivered"),
    Fault("lost step, producer stays", _loss_that_spares(_writes_it), "delivered"),
    Fault("lost step, loading readers stay", _loss_that_spares(_is_loading), "delivered"),
    Fault(
        "tail copied from the step that writes it",
        without_guards("copy for reader", "nothing of this step"),
        "delivered",
    ),
    Fault("tail moved without a copy", _with_after("copy for producer", _not_copied), "tail hash is content"),
    Fault("copy without a pin", _with_after("copy for reader", _not_referenced), "references"),
    Fault("copy released before it ran, and again then", _with_after("commit step", _released_at_once), "references"),
    Fault("copy that has run and is not released", _with_after("end step", _not_referenced), "references"),
    Fault(
        "copy that has run, released although it was before",
        without_guards("end step", "only what queued copies hold is released"),
        "counts",
    ),
    Fault(
        "state retired after its chunk was planned",
        without_guards("retire", "not after the chunk of this step"),
        "chunk reads its state",
    ),
    Fault("state retired that is still read", without_guards("retire", "no later token reads it"), "needs are held"),
    Fault("reset under a holder", without_guards("reset", "all blocks are unreferenced"), "shared is hashed"),
    Fault("start with a hole", without_guards("start", "what R sees is held"), "needs are held"),
    Fault(
        "start from what is not a hit",
        without_guards("start", "what is held below R is a hit or a load"),
        "needs are held",
    ),
    Fault("started before all of its load", without_guards("load commits", "all of its load has begun"), "delivered"),
)
