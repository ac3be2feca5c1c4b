"""Transitions of steps and of endings: a step is committed, executed or lost; requests are freed; the cache is reset.

Committed steps are executed in the order of their commitment.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import z3

from solver.soundness.state import IDLE, LOADING, State, at, one_if
from solver.soundness.terms import BLOCK, ENTRY, REQUEST, Universal
from solver.soundness.transition import Action, Transition, guard
from solver.soundness.vocabulary import BLOCK_SORT, KEY_SORT, REQUEST_SORT, Entry, Formula, Term


def _step_over(state: State) -> State:
    """No step is under construction any more; nothing is held for its copies."""
    words = state.words
    return attrs.evolve(
        state,
        fresh_full=lambda _: z3.BoolVal(False),
        fresh_tail=lambda _: z3.BoolVal(False),
        changed=lambda _: z3.BoolVal(False),
        reading=lambda _: z3.BoolVal(False),
        writer=lambda _: words.nobody,
        copies=lambda _: z3.IntVal(0),
        copy_of=lambda _: words.null,
        in_step=lambda _: z3.BoolVal(False),
    )


COPIES_WAIT = z3.Bool("copies hold their blocks until they have run")


def commit_step(state: State, copies_wait: Formula = COPIES_WAIT) -> Transition:
    """What was held for the step's copies is released at once, or stays so until steps have run
    (`_free_cow_retained_blocks`)."""

    def held(block: Term) -> Term:
        return state.copies(block) + one_if(state.copy_of(block) != state.words.null)

    after = attrs.evolve(
        _step_over(state),
        refs=lambda b: state.refs(b) - z3.If(copies_wait, 0, held(b)),
        queued_copies=lambda b: state.queued_copies(b) + z3.If(copies_wait, held(b), 0),
        seen=state.last,
        queued_writes=lambda b: state.queued_writes(b) + one_if(state.changed(b)),
        queued_reads=lambda b: state.queued_reads(b) + one_if(state.reading(b)),
    )
    return Transition((), after)


@attrs.frozen(eq=False)
class Executed:
    """What the oldest committed step does: the blocks it writes and reads, how many references of copies are released
    after it, and what a block shows in between steps that both write it."""

    writes: Callable[[Term], Formula]
    reads: Callable[[Term], Formula]
    copied: Callable[[Term], Term]
    between: Callable[[Term, Term], Formula]


def arbitrary_execution() -> Executed:
    truth = z3.BoolSort()
    return Executed(
        z3.Function("the oldest step writes", BLOCK_SORT, truth),
        z3.Function("the oldest step reads", BLOCK_SORT, truth),
        z3.Function("copies that have run", BLOCK_SORT, z3.IntSort()),
        z3.Function("shows between steps", BLOCK_SORT, KEY_SORT, truth),
    )


def end_step(state: State, executed: Executed | None = None) -> Transition:
    """Memory has what the oldest committed step wrote. What copies held that have run by now may be released; that may
    also be after a later step (`_drain_deferred_frees`)."""
    step = executed or arbitrary_execution()

    def queued(block: Term) -> Formula:
        writes = z3.Implies(step.writes(block), state.queued_writes(block) >= 1)
        return z3.And(writes, z3.Implies(step.reads(block), state.queued_reads(block) >= 1))

    def released(block: Term) -> Formula:
        return z3.And(0 <= step.copied(block), step.copied(block) <= state.queued_copies(block))

    def now(block: Term, key: Term) -> Formula:
        settled = z3.And(state.queued_writes(block) == 1, z3.Not(state.changed(block)))
        written = z3.If(settled, state.seen(block, key), step.between(block, key))
        return z3.If(step.writes(block), written, state.now(block, key))

    after = attrs.evolve(
        state,
        refs=lambda b: state.refs(b) - step.copied(b),
        now=now,
        queued_writes=lambda b: state.queued_writes(b) - one_if(step.writes(b)),
        queued_reads=lambda b: state.queued_reads(b) - one_if(step.reads(b)),
        queued_copies=lambda b: state.queued_copies(b) - step.copied(b),
    )
    guards = (
        Universal("the step was committed", (BLOCK,), queued),
        Universal("only what queued copies hold is released", (BLOCK,), released),
    )
    return Transition(guards, after)


@attrs.frozen(eq=False)
class Loss:
    """Blocks that do not hold what was planned; requests that go back to 0, or what they hold counts for nothing; and
    how many of a block's holders go back."""

    spoilt: Callable[[Term], Formula]
    rolled_back: Callable[[Term], Formula]
    withdrawn: Callable[[Term], Formula]
    dropped: Callable[[Term], Term]


def arbitrary_loss() -> Loss:
    truth = z3.BoolSort()
    return Loss(
        z3.Function("spoilt", BLOCK_SORT, truth),
        z3.Function("rolled back", REQUEST_SORT, truth),
        z3.Function("hit withdrawn", REQUEST_SORT, truth),
        z3.Function("holders that go back", BLOCK_SORT, z3.IntSort()),
    )


def lose_step(state: State, executed: Executed | None = None, loss: Loss | None = None) -> Transition:
    """The oldest committed step ends, partly without its effect: a synchronous load failed, or the step was lost.

    `spoilt` is whatever does not hold what was planned, by itself or because a step in flight computes it from what
    does not. The guards say what the engine must do about it: withdraw the hashes, and roll back whoever holds such a
    block; a request whose blocks are in use until later counts for nothing meanwhile.
    """
    words, lost = state.words, loss or arbitrary_loss()
    ended = end_step(state, executed)

    def nothing_is_planned(block: Term, request: Term) -> Formula:
        still = z3.And(z3.Not(state.changed(block)), z3.Not(state.reading(block)), z3.Not(state.in_step(request)))
        return z3.And(still, state.copies(block) == 0, state.copy_of(block) == words.null)

    def rolled_back(entry: Entry, block: Term) -> Formula:
        holds = z3.And(lost.spoilt(block), block != words.null, state.table(entry) == block)
        goes = z3.Or(lost.withdrawn(entry.request), lost.rolled_back(entry.request))
        return z3.Implies(holds, goes)

    def load_goes_on(request: Term) -> Formula:
        return z3.Implies(lost.rolled_back(request), state.status(request) != LOADING)

    def outside(block: Term) -> Formula:
        return z3.Implies(lost.spoilt(block), z3.And(state.saves(block) == 0, z3.Not(state.loading(block))))

    def counted(request: Term, block: Term) -> Formula:
        held, dropped = state.held(request, block), lost.dropped(block)
        kept = state.holders(block) - dropped
        counts = z3.And(dropped >= 0, z3.If(lost.rolled_back(request), held <= dropped, held <= kept), kept >= 0)
        return z3.Implies(block != words.null, counts)

    def unspoilt(content: Callable[[Term, Term], Formula]) -> Callable[[Term, Term], Formula]:
        return lambda block, key: z3.And(z3.Not(lost.spoilt(block)), content(block, key))

    after = attrs.evolve(
        ended.after,
        refs=lambda b: ended.after.refs(b) - lost.dropped(b),
        full_hash=lambda b: z3.If(lost.spoilt(b), words.no_key, state.full_hash(b)),
        tail_hash=lambda b: z3.If(lost.spoilt(b), words.no_key, state.tail_hash(b)),
        now=unspoilt(ended.after.now),
        seen=unspoilt(state.seen),
        last=unspoilt(state.last),
        table=lambda e: z3.If(lost.rolled_back(e.request), words.null, state.table(e)),
        filled=lambda e: z3.If(lost.rolled_back(e.request), 0, state.filled(e)),
        awaits=lambda e: z3.And(z3.Not(lost.rolled_back(e.request)), state.awaits(e)),
        checkpoint=lambda e: z3.And(z3.Not(lost.rolled_back(e.request)), state.checkpoint(e)),
        found=lambda _: words.null,
        status=lambda r: z3.If(lost.rolled_back(r), IDLE, state.status(r)),
        computed=lambda r: z3.If(lost.rolled_back(r), 0, state.computed(r)),
        settled=lambda r: z3.If(lost.rolled_back(r), 0, state.settled(r)),
        verified=lambda r: z3.If(lost.rolled_back(r), 0, state.verified(r)),
        withdrawn=lambda r: z3.And(z3.Not(lost.rolled_back(r)), z3.Or(state.withdrawn(r), lost.withdrawn(r))),
        holders=lambda b: state.holders(b) - lost.dropped(b),
        held=lambda r, b: z3.If(lost.rolled_back(r), 0, state.held(r, b)),
    )
    guards = (
        *ended.guards,
        Universal("no step is under construction", (BLOCK, REQUEST), nothing_is_planned),
        Universal("holders of spoilt blocks go back", (ENTRY, BLOCK), rolled_back),
        Universal("a load that is under way is not rolled back", (REQUEST,), load_goes_on),
        Universal("a step spoils no block of a load or save", (BLOCK,), outside),
    )
    cardinality = Universal("cardinality: who goes back holds nothing more", (REQUEST, BLOCK), counted)
    return Transition(guards, after, (cardinality,))


def free(state: State, request: Term) -> Transition:
    """Finished, aborted or preempted: all blocks are released, and tokens count as not computed."""
    guards = (
        guard("no load is under way", state.status(request) != LOADING),
        guard("not in the step under construction", z3.Not(state.in_step(request))),
    )
    return Transition(guards, _freed(state, request))


def _freed(state: State, request: Term) -> State:
    words = state.words
    return attrs.evolve(
        state.without_tables_of(request).with_progress(request, z3.IntVal(0)),
        found=lambda e: z3.If(e.request == request, words.null, state.found(e)),
        status=at(state.status, request, z3.IntVal(IDLE)),
        withdrawn=at(state.withdrawn, request, z3.BoolVal(False)),
    )


def preempt_in_step(state: State, request: Term) -> Transition:
    """Its chunk is taken out of the step, and so are the hashes that were published for it. Only priorities lead here,
    and vLLM leaves the hashes (docs/findings/hash-of-a-preempted-chunk.md)."""
    words = state.words

    def unwritten(block: Term) -> Formula:
        return state.writer(block) == request

    def nobody_else(entry: Entry, block: Term) -> Formula:
        other = z3.And(entry.request != request, block != words.null)
        relies = z3.Or(state.table(entry) == block, state.found(entry) == block)
        return z3.Implies(z3.And(other, relies), state.writer(block) != request)

    freed = _freed(state, request)
    after = attrs.evolve(
        freed,
        full_hash=lambda b: z3.If(z3.And(unwritten(b), state.fresh_full(b)), words.no_key, state.full_hash(b)),
        tail_hash=lambda b: z3.If(z3.And(unwritten(b), state.fresh_tail(b)), words.no_key, state.tail_hash(b)),
        last=lambda b, k: z3.If(unwritten(b), state.seen(b, k), state.last(b, k)),
        writer=lambda b: z3.If(unwritten(b), words.nobody, state.writer(b)),
        in_step=at(state.in_step, request, z3.BoolVal(False)),
    )
    guards = (
        guard("in the step under construction", state.in_step(request)),
        Universal("nobody else relies on what it was to write", (ENTRY, BLOCK), nobody_else),
    )
    return Transition(guards, after)


def reset(state: State) -> Transition:
    words = state.words

    def unreferenced(block: Term) -> Formula:
        return z3.Implies(block != words.null, state.refs(block) == 0)

    guards = (
        Universal("all blocks are unreferenced", (BLOCK,), unreferenced),
        Universal("no lookup is outstanding", (ENTRY,), lambda entry: state.found(entry) == words.null),
    )
    after = attrs.evolve(state, full_hash=lambda _: words.no_key, tail_hash=lambda _: words.no_key)
    return Transition(guards, after)


ACTIONS = (
    Action("free", (REQUEST,), free, "KVCacheManager.free, _preempt_request, finish_requests"),
    Action("preempt in step", (REQUEST,), preempt_in_step, "_preempt_request of a request scheduled in this step"),
    Action("commit step", (), commit_step, "schedule returns, the worker gets the step"),
    Action("end step", (), end_step, "execute_model"),
    Action("lose step", (), lose_step, "_update_requests_with_invalid_blocks; a step that is lost"),
    Action("reset", (), reset, "reset_prefix_cache"),
)
