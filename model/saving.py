"""Saves from the plan of a step to their end: what is saved, and what guards the blocks that are read for it.

Mirrors `MooncakeStoreScheduler._reference_save_blocks` and `update_connector_output` (mooncake/store/scheduler.py), and
the fences of `OffloadingConnectorScheduler._build_connector_meta` (offloading/scheduler.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from model import store as storing
from model.connector import Leaf, leaves_of
from model.plan import Chunk, Copy, Load, Save, StepPlan
from model.pool import Label, Pool
from model.request import Request
from model.scheduler import Scheduler
from model.values import evolve


def store_leaves(scheduler: Scheduler) -> dict[str, Leaf]:
    """Leaves that keep objects, by name."""
    connector = scheduler.configuration.connector
    leaves = () if connector is None else leaves_of(connector)
    return {leaf.name: leaf for leaf in leaves if leaf.store is not None}


def tell(scheduler: Scheduler, chunk: Chunk) -> Scheduler:
    """Every store is told of a chunk that was planned."""
    if not scheduler.stores:
        return scheduler
    for name, leaf in store_leaves(scheduler).items():
        assert leaf.store is not None
        scheduler = scheduler.with_store(name, storing.seen(scheduler.stores[name], leaf.store, chunk))
    return scheduler


def planned(
    scheduler: Scheduler, pool: Pool, request: Request, end: int, states: frozenset[Label], copies: Iterable[Copy]
) -> Iterator[Save]:
    """What is to be saved once `request` has run up to `end`, and `states` were cached in `pool`. Every store saves,
    whichever leaf loaded.

    Recurrent states are handed over with their blocks: those of full columns, each for the boundary for which its
    block is cached, which a checkpoint changes (`MambaManager.cache_blocks`), and that of a partial tail not before it
    has a copy that stays."""
    if not scheduler.stores:
        return
    configuration = scheduler.configuration
    handed_over = [
        (label, block)
        for index, group in enumerate(configuration.groups)
        if group.recurrent
        for block in request.tables[index][: request.published[index]]
        for label in (pool.labels[block],)
        if label in states
    ]
    for copy in copies:
        label = pool.labels[copy.destination]
        if not copy.replaces and label is not None and label.prefix == request.tokens[: len(label.prefix)]:
            handed_over.append((label, copy.destination))
    in_flight = {(save.leaf, save.label) for step in scheduler.in_flight for save in step.plan.saves}
    for name, leaf in store_leaves(scheduler).items():
        for save in storing.saves(configuration, leaf, scheduler.stores[name], request, end, handed_over):
            if (save.leaf, save.label) not in in_flight:
                yield save


def before_step(scheduler: Scheduler, plan: StepPlan, announced: Iterable[Load]) -> tuple[Scheduler, tuple[Save, ...]]:
    """The step takes blocks: pending saves of them are done first or given up, as each store's guard has it. Returns
    what has to be saved before anything is written."""
    if not any(store.pending for store in scheduler.stores.values()):
        return scheduler, ()
    announced = tuple(announced)
    flushed: list[Save] = []
    for name, leaf in store_leaves(scheduler).items():
        store = scheduler.stores[name]
        due, given_up = storing.changing_hands(leaf, store, plan, announced)
        flushed += due
        left = tuple(save for save in store.pending if save not in given_up)
        scheduler = scheduler.with_store(name, evolve(store, pending=left))
    return done(scheduler, tuple(flushed)), tuple(flushed)


def before_load(
    scheduler: Scheduler, blocks: Collection[int], loads: Iterable[Load]
) -> tuple[Scheduler, tuple[Save, ...]]:
    """Asynchronous loads write `blocks` while the step that announced them is in flight. What that step is to save of
    these blocks is saved before: the worker sees to it before it begins a load (`handle_preemptions` comes before
    `start_load_kv`)."""
    loads = tuple(loads)
    flushed: tuple[Save, ...] = ()
    for step in scheduler.in_flight:
        taken = tuple(block for block in step.plan.taken if block in blocks)
        scheduler, saves = before_step(scheduler, StepPlan(taken=taken), loads)
        flushed += saves
    return scheduler, flushed


def announce(
    scheduler: Scheduler, saves: Iterable[Save], undone: Collection[str]
) -> tuple[Scheduler, tuple[Save, ...]]:
    """The step is over, and these saves are due, but for those of requests for which it is `undone`. Returns those that
    are done at once; the others are pending."""
    leaves = store_leaves(scheduler)
    at_once: list[Save] = []
    for save in saves:
        rules = leaves[save.leaf].store
        assert rules is not None
        if save.request in undone:
            scheduler = evolve(scheduler, pool=scheduler.pool.release(save.held))
        elif rules.delayed:
            store = scheduler.stores[save.leaf]
            scheduler = scheduler.with_store(save.leaf, evolve(store, pending=(*store.pending, save)))
        else:
            at_once.append(save)
    return done(scheduler, tuple(at_once)), tuple(at_once)


def done(scheduler: Scheduler, saves: tuple[Save, ...]) -> Scheduler:
    """The worker reports that these saves have taken place: from now on lookups find the objects."""
    for save in saves:
        store = scheduler.stores[save.leaf]
        if save in store.pending:
            scheduler = evolve(scheduler, pool=scheduler.pool.release(save.held))
        left = tuple(other for other in store.pending if other != save)
        scheduler = scheduler.with_store(save.leaf, evolve(store, keys=store.keys | {save.label}, pending=left))
    return scheduler


def referenced(scheduler: Scheduler) -> tuple[int, ...]:
    """Blocks that saves reference, once for each reference: those that are pending, and those of steps in flight."""
    pending = (save for store in scheduler.stores.values() for save in store.pending)
    planned = (save for step in scheduler.in_flight for save in step.plan.saves)
    return tuple(block for save in (*pending, *planned) for block in save.held)
