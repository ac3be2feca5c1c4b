"""Events of connectors that keep objects."""

from __future__ import annotations

import functools

from model.actions import EvictObject
from model.store import hit_unit, needed
from model.system import Observation
from properties.features import Feature
from properties.invariant import Sometimes, draws
from properties.invariants.stores import objects_of, said_by_stores


def _store_loads(observation: Observation) -> bool:
    return any(load.fetches for admission in observation.admissions for load in admission.loads)


def _joined_hit(observation: Observation) -> bool:
    """A store's answer ends below what attention alone has there."""
    configuration = observation.before.configuration
    indexes = [index for index, group in enumerate(configuration.groups) if not group.recurrent]
    return any(
        objects_of(observation.before, leaf).issuperset(
            label
            for index in indexes
            for label in needed(configuration, rules, index, decision.prefix, decision.asked, deeper)
        )
        for decision, leaf, answer in said_by_stores(observation)
        for rules in (leaf.store,)
        if rules is not None
        for deeper in (decision.asked + answer.tokens + hit_unit(configuration, rules),)
        if deeper < len(decision.prefix)
    )


def _gives_up(observation: Observation) -> bool:
    if observation.plan is None:
        return False
    after = observation.after.scheduler.stores
    return any(
        save not in store.pending and save.label not in store.keys
        for name, before in observation.before.scheduler.stores.items()
        for store in (after[name],)
        for save in before.pending
    )


def _loser_saves(observation: Observation) -> bool:
    """A leaf stores for a request that another leaf loaded."""
    if observation.plan is None:
        return False
    loaders = {
        load.request: load.leaf.name
        for admission in observation.started
        for load in admission.loads
        if load.assigned and not load.asynchronous
    }
    return any(loaders.get(save.request, save.leaf) != save.leaf for save in observation.saved)


_event = functools.partial(Sometimes, applies_to="campaigns with stores", applies=draws(Feature.STORES))


ENTRIES = (
    _event(
        id="STORED",
        statement="A store saves a recurrent state and attention KV.",
        occurs=lambda observation: (
            len({observation.after.configuration.groups[save.label.group].recurrent for save in observation.saved}) == 2
        ),
    ),
    _event(
        id="STORE-LOADED",
        statement="A request is admitted with E > 0 from a store.",
        occurs=_store_loads,
    ),
    _event(
        id="WIDE-OBJECT-LOADED",
        statement="A load reads several blocks of one object.",
        occurs=lambda observation: any(
            fetch.from_end for admission in observation.admissions for load in admission.loads for fetch in load.fetches
        ),
    ),
    _event(
        id="OBJECT-LOST",
        statement="A store loses an object.",
        occurs=lambda observation: isinstance(observation.action, EvictObject),
    ),
    _event(
        id="JOINED-HIT",
        statement="A store has the attention of a deeper boundary than the one it answers, and lacks a state there.",
        occurs=_joined_hit,
    ),
    _event(
        id="SAVE-OUTLIVES-REQUEST",
        statement="A save is done after its request has ended.",
        occurs=lambda observation: any(
            save.request not in observation.before.scheduler.requests
            for save in (*observation.flushed, *observation.saved)
        ),
    ),
    _event(
        id="SAVE-FLUSHED",
        statement="A block changes hands, and a pending save of it is done first.",
        occurs=lambda observation: bool(observation.flushed),
    ),
    _event(
        id="SAVE-GIVEN-UP",
        statement="A block changes hands, and a pending save of it is given up.",
        occurs=_gives_up,
    ),
    _event(
        id="LOSER-SAVES",
        statement="A store saves for a request that another leaf loaded.",
        occurs=_loser_saves,
    ),
)
