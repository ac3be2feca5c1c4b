"""What stores answer, load and save, judged by the objects that they really have."""

from __future__ import annotations

from collections.abc import Iterator

from model.admission import Decision
from model.configuration import Group
from model.connector import Leaf, leaves_of
from model.geometry import column_ending_at
from model.policy import Answer
from model.pool import Label
from model.store import Store, found, hit_unit, needed, object_span
from model.store_rules import OutputStates, StateSource, StoreRules
from model.system import Observation, System
from properties import wording
from properties.invariant import Finding
from properties.verdict import Case


def objects_of(system: System, leaf: Leaf) -> frozenset[Label]:
    """Keys of the objects that the leaf has."""
    return frozenset(label for name, label in system.worker.objects if name == leaf.name)


def objects_to_be(system: System, leaf: Leaf) -> frozenset[Label]:
    """Keys of the objects that the leaf has, or will have once its pending saves are done."""
    return objects_of(system, leaf).union(save.label for save in system.scheduler.stores[leaf.name].pending)


def store_leaves(system: System) -> tuple[Leaf, ...]:
    """Leaves that keep objects."""
    connector = system.configuration.connector
    return () if connector is None else tuple(leaf for leaf in leaves_of(connector) if leaf.store is not None)


def said_by_stores(observation: Observation) -> Iterator[tuple[Decision, Leaf, Answer]]:
    """Every answer of a leaf that keeps objects, in the admissions of a step."""
    if not observation.before.scheduler.stores:
        return
    connector = observation.before.configuration.connector
    assert connector is not None
    leaves = tuple(leaves_of(connector))
    for admission in observation.admissions:
        for answer in admission.decision.said:
            if 0 <= answer.source < len(leaves) and leaves[answer.source].store is not None and not answer.unknown:
                yield admission.decision, leaves[answer.source], answer


def missing_at_resume(observation: Observation) -> Iterator[str]:
    """Objects that a load for R needs and that its store does not have. An object of attention that goes on beyond R
    serves as well, where the load fetches it."""
    configuration = observation.before.configuration
    for decision, leaf, answer in said_by_stores(observation):
        if decision.external <= 0 or answer.source != decision.answer.source:
            continue
        keys = objects_of(observation.before, leaf)
        assert leaf.store is not None
        fetched = _fetched_objects(observation, leaf.store, decision, keys)
        for index, group in enumerate(configuration.groups):
            missing = {
                len(label.prefix)
                for label in needed(configuration, leaf.store, index, decision.prefix, decision.local, decision.resume)
                if label not in keys and (group.recurrent or (index, _number(leaf.store, group, label)) not in fetched)
            }
            if missing:
                yield (
                    f"{decision.request}: {wording.sum_of(decision.local, decision.external)}, but {leaf.name} has no "
                    f"object of {wording.group_name(configuration, index)} for {min(missing)} tokens"
                )


def _number(rules: StoreRules, group: Group, label: Label) -> int:
    """Which object of its group it is, counted from the beginning of the prefix."""
    return column_ending_at(len(label.prefix), object_span(rules, group))


def _fetched_objects(
    observation: Observation, rules: StoreRules, decision: Decision, keys: frozenset[Label]
) -> set[tuple[int, int]]:
    """Group and number of each object that exists and that the request's load fetches."""
    groups = observation.before.configuration.groups
    return {
        (label.group, _number(rules, groups[label.group], label))
        for admission in observation.admissions
        if admission.decision is decision
        for load in admission.loads
        for label in (fetch.label for fetch in load.fetches)
        if label in keys
    }


def restored_too_far(observation: Observation) -> Iterator[str]:
    """Recurrent states after the request's last token, which is run once more."""
    for admission in observation.admissions:
        for load in admission.loads:
            if load.end == len(load.prefix):
                continue
            for fetch in load.fetches:
                recurrent = observation.after.configuration.groups[fetch.label.group].recurrent
                if recurrent and len(fetch.label.prefix) >= len(load.prefix):
                    yield (
                        f"{load.request}: {load.leaf.name} restores state@{len(fetch.label.prefix)} of group "
                        f"{fetch.label.group}, and token {len(load.prefix)} is run once more"
                    )


def other_interval(observation: Observation) -> Iterator[str]:
    """Objects that a load fetches although they are not those of its interval."""
    configuration = observation.after.configuration
    for admission in observation.admissions:
        for load in admission.loads:
            for label in dict.fromkeys(fetch.label for fetch in load.fetches):
                rules, group = load.leaf.store, configuration.groups[label.group]
                assert rules is not None
                labels = set(needed(configuration, rules, label.group, load.prefix, load.start, load.end))
                numbers = {_number(rules, group, each) for each in labels}
                covers = _number(rules, group, label) in numbers
                if label not in labels and (group.recurrent or not covers):
                    yield (
                        f"{load.request}: {load.leaf.name} loads [{load.start}, {load.end}) and fetches the object of "
                        f"{wording.group_name(configuration, label.group)} for {len(label.prefix)} tokens"
                    )


def understated(observation: Observation) -> Iterator[str]:
    """Answers below the greatest boundary at which every group's objects exist."""
    configuration = observation.before.configuration
    for decision, leaf, answer in said_by_stores(observation):
        keys = objects_of(observation.before, leaf)
        assert leaf.store is not None
        rules = StoreRules(object_blocks=leaf.store.object_blocks)
        best = found(configuration, rules, Store(keys), decision.prefix, decision.asked)
        if decision.asked + answer.tokens < best:
            yield (
                f"{decision.request}: {leaf.name} answers {answer.tokens} from {decision.asked}, and has the "
                f"objects of every group at {best}"
            )


def half_saved(observation: Observation) -> Iterator[Finding]:
    """Boundaries whose attention is stored while the state, which is cached, is not, where the objects of every group
    end. The state of a partial tail is handed over only once it has a copy, if ever. A store that keeps every state it
    is handed was not handed this one."""
    configuration, after = observation.after.configuration, observation.after
    new = after.scheduler.pool.cached.keys() - observation.before.scheduler.pool.cached.keys()
    blocks = {index: group.block for index, group in enumerate(configuration.groups) if group.recurrent}
    states = [label for label in new if label.group in blocks and len(label.prefix) % blocks[label.group] == 0]
    for leaf in store_leaves(after) if observation.plan is not None and observation.plan.saves else ():
        assert leaf.store is not None
        if leaf.store.state_source is StateSource.NOT_KEPT:
            continue
        keeps_all = (
            leaf.store.state_source is StateSource.HANDED_OVER and leaf.store.output_states is OutputStates.STORED
        )
        keys, unit = objects_to_be(after, leaf), hit_unit(configuration, leaf.store)
        for label in states:
            if len(label.prefix) % unit:
                continue
            attention = [
                key
                for index, group in enumerate(configuration.groups)
                if not group.recurrent
                for key in needed(configuration, leaf.store, index, label.prefix, 0, len(label.prefix))
            ]
            if label not in keys and attention and keys.issuperset(attention):
                yield (
                    Case.RELEASE if keeps_all else None,
                    f"{leaf.name} has the attention of {len(label.prefix)} tokens and does not store the state of "
                    f"{wording.group_name(configuration, label.group)}, which is cached",
                )
