"""Random traces for a real connector: prompts that come back after what they left in the local cache is gone, in whole
or in part, while the connector still has it."""

from __future__ import annotations

import random

import attrs

from model.actions import Abort, Action, Arrive, Drain, EndLoad, EndSaves, Evict, Preempt, Reset, Step
from model.configuration import Configuration, Eviction, Group, GroupKind
from model.connector import Contract, Leaf
from model.release import Release
from model.reservation import most_blocks
from model.store_rules import StoreRules
from model.tokens import Segment
from model.trace import Trace
from properties.strategies import cut, longest_text
from subjects.connector_engine import CONNECTOR

MOST_REQUESTS = 7
"""Requests that arrive in one trace."""


@attrs.frozen
class Course:
    """What the traces of one kind have: a second attention spec beside a recurrent group, or no recurrent group at all;
    whether lookups that may diverge are offered; whether loads and saves end late."""

    offers_divergence: bool
    late: bool
    second_attention: GroupKind | None = None
    recurrent: bool = True


def courses(*, hybrid: bool) -> tuple[Course, ...]:
    """Those for a connector that takes several groups, or one."""
    if not hybrid:
        return tuple(Course(offers_divergence=False, late=late, recurrent=False) for late in (False, True))
    return tuple(
        Course(offers_divergence, late, second)
        for offers_divergence in (False, True)
        for late in (False, True)
        for second in (None, GroupKind.SLIDING_WINDOW, GroupKind.FULL_ATTENTION)
        if second is not GroupKind.FULL_ATTENTION or offers_divergence
    )


def random_trace(seed: int, course: Course, release: Release, *, failures: bool, actions: int) -> Trace:
    """A trace of `actions` actions; one that is not possible where it stands is left out when it is run. With
    `failures` loads fail now and then."""
    rng = random.Random(f"{seed} {course}")
    configuration = attrs.evolve(_configuration(rng, course), release=release)
    texts: dict[str, tuple[Segment, ...]] = {}
    done: list[Action] = []
    while len(done) < actions:
        done += _actions(rng, configuration, texts, failures=failures)
    return Trace(f"seed {seed}", configuration, (*done, Drain()), source="subjects.connector_traces")


def _configuration(rng: random.Random, course: Course) -> Configuration:
    unit = rng.choice([2, 4])
    groups = [Group(GroupKind.FULL_ATTENTION, unit)]
    if course.second_attention is GroupKind.FULL_ATTENTION:
        groups.append(Group(GroupKind.FULL_ATTENTION, 2 * unit))
    elif course.second_attention is GroupKind.SLIDING_WINDOW:
        groups.append(Group(GroupKind.SLIDING_WINDOW, unit, window=rng.choice([unit, 2 * unit, 3 * unit - 1])))
    if course.recurrent:
        narrow = course.second_attention is not None
        groups.append(Group(GroupKind.MAMBA, unit if narrow else unit * rng.choice([1, 1, 2, 4])))
    leaf = Leaf(
        CONNECTOR,
        claims=course.offers_divergence,
        contract=Contract.ENDPOINT,
        store=StoreRules(asynchronous=course.late, delayed=course.late),
    )
    scratch = Configuration(tuple(groups), pool_blocks=2, budget=1)
    need = most_blocks(scratch, longest_text(scratch))
    return attrs.evolve(
        scratch,
        connector=leaf,
        pool_blocks=1 + int(need * rng.choice([1.5, 2, 4, 4])),
        budget=rng.choice([20 * unit, scratch.scheduler_block, 2 * unit, 3 * unit]),
        eviction=Eviction.ADVERSARIAL,
    )


def _actions(
    rng: random.Random, configuration: Configuration, texts: dict[str, tuple[Segment, ...]], *, failures: bool
) -> list[Action]:
    """What happens next: an action, or the loss of several blocks of one group at once."""
    roll = rng.random()
    if not texts or (len(texts) < MOST_REQUESTS and roll < 0.22):
        return [_arrival(rng, configuration, texts)]
    request = rng.choice(list(texts))
    if len(texts) < MOST_REQUESTS and roll < 0.32:
        return [Drain(), *_return(rng, configuration, request, texts)]
    if roll < 0.35:
        return [Drain()]
    if roll < 0.4:
        return [Reset()]
    if roll < 0.5:
        return _losses(rng, configuration, request, texts[request])
    if roll < 0.6:
        return [EndLoad(request, succeeded=not failures or rng.random() < 0.7)]
    if roll < 0.64:
        return [EndSaves(CONNECTOR)]
    if roll < 0.66:
        return [Abort(request)]
    if roll < 0.69:
        return [Preempt()]
    return [Step()]


def _losses(rng: random.Random, configuration: Configuration, request: str, text: tuple[Segment, ...]) -> list[Action]:
    index = rng.randrange(len(configuration.groups))
    share = rng.choice([1.0, 1.0, 0.5, 0.2])
    return [loss for loss in _beyond(configuration, index, request, text, 0) if rng.random() < share]


def _return(
    rng: random.Random, configuration: Configuration, request: str, texts: dict[str, tuple[Segment, ...]]
) -> list[Action]:
    """A text comes back after each group has lost all of it beyond a boundary of its own."""
    text = texts[request]
    length, unit = sum(segment.length for segment in text), configuration.scheduler_block
    losses: list[Action] = []
    for index in range(len(configuration.groups)):
        kept = rng.choice([0, rng.randint(0, length // unit) * unit])
        losses += _beyond(configuration, index, request, text, kept)
    name = f"r{len(texts) + 1}"
    fresh = rng.choice([0, 0, 1, unit])
    prompt = (*text, Segment(f"t{len(texts) + 1}", fresh)) if fresh else text
    output = (Segment(f"o{len(texts) + 1}", 1),)
    texts[name] = prompt + output
    return [*losses, Arrive(name, prompt, output), Step()]


def _beyond(
    configuration: Configuration, index: int, request: str, text: tuple[Segment, ...], kept: int
) -> list[Action]:
    """The loss of everything that a group has of a text beyond `kept` tokens, the longest first."""
    block, length = configuration.groups[index].block, sum(segment.length for segment in text)
    first = kept // block * block + block
    return [Evict(index, request, boundary) for boundary in reversed(range(first, length + 1, block))]


def _arrival(rng: random.Random, configuration: Configuration, texts: dict[str, tuple[Segment, ...]]) -> Arrive:
    number = len(texts) + 1
    unit = configuration.hash_block
    longest = longest_text(configuration) - 3
    shared: tuple[Segment, ...] = ()
    if texts and rng.random() < 0.85:
        parent = rng.choice(list(texts.values()))
        length = min(sum(segment.length for segment in parent), longest)
        shared = cut(
            parent, rng.choice([length, length, rng.randint(0, length), rng.randint(0, length) // unit * unit])
        )
    have = sum(segment.length for segment in shared)
    fresh = 0 if have and rng.random() < 0.3 else rng.randint(1, max(1, longest - have))
    prompt = (*shared, Segment(f"t{number}", fresh)) if fresh else shared
    output = (Segment(f"o{number}", rng.randint(1, unit)),)
    texts[f"r{number}"] = prompt + output
    return Arrive(f"r{number}", prompt, output)
