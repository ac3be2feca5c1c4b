"""How a store loses objects: evicted one by one, or all of them at a reset.

Mirrors the eviction of the CPU and Mooncake stores, each by its own order, and their `reset_cache`.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from model import saving
from model.actions import EvictObject
from model.errors import IllegalAction
from model.pool import Label
from model.request import Status
from model.scheduler import Scheduler
from model.store import Store
from model.store_rules import Agreement, AtReset, LoadPins, StoreRules
from model.tokens import Prefix
from model.worker import Worker


def evict_object(
    scheduler: Scheduler, worker: Worker, texts: Mapping[str, Prefix], action: EvictObject
) -> tuple[Scheduler, Worker]:
    """The object is gone, unless the leaf keeps it for a load; where the ranks do not agree, for some of them only.
    Raises IllegalAction."""
    store = scheduler.stores.get(action.leaf)
    label = Label(action.group, texts.get(action.request, ())[: action.boundary])
    if store is None or label not in store.keys or len(label.prefix) != action.boundary:
        raise IllegalAction(
            f"{action.leaf!r} has no object of group {action.group} for {action.boundary} tokens of {action.request!r}"
        )
    if label in _pinned(scheduler, action.leaf):
        return scheduler, worker
    if action.rank == 0 or _rules(scheduler, action.leaf).agreement is Agreement.EVERY_RANK:
        scheduler = scheduler.with_store(action.leaf, attrs.evolve(store, keys=store.keys - {label}))
    objects = {key: held for key, held in worker.objects.items() if key != (action.leaf, label)}
    return scheduler, attrs.evolve(worker, objects=objects)


def reset_stores(scheduler: Scheduler, worker: Worker) -> tuple[Scheduler, Worker]:
    """The prefix cache is reset: stores that the reset reaches are empty."""
    for name in scheduler.stores:
        if _rules(scheduler, name).at_reset is AtReset.EMPTIED:
            objects = {key: held for key, held in worker.objects.items() if key[0] != name}
            scheduler = scheduler.with_store(name, Store())
            worker = attrs.evolve(worker, objects=objects)
    return scheduler, worker


def _rules(scheduler: Scheduler, leaf: str) -> StoreRules:
    rules = saving.store_leaves(scheduler)[leaf].store
    assert rules is not None
    return rules


def _pinned(scheduler: Scheduler, leaf: str) -> set[Label]:
    """Objects that a load under way is to fetch, or that were promised, and that the leaf keeps until then."""
    promised = {label for request in scheduler.requests.values() for name, label in request.promises if name == leaf}
    return promised | {
        fetch.label
        for request in scheduler.requests.values()
        if request.status in (Status.LOADING, Status.ABORTED_LOADING)
        for load in request.loads
        if load.leaf.name == leaf and load.leaf.store and load.leaf.store.load_pins is not LoadPins.NEVER
        for fetch in load.fetches
    }
