"""Make a violating trace smaller: leave out and simplify everything that the violation does not need."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from model.actions import (
    Action,
    Arrive,
    Drain,
    EndLoad,
    Evict,
    EvictObject,
    Execute,
    LeafAnswers,
    Schedule,
    ScriptedAnswer,
    Step,
)
from model.configuration import Configuration, Scheduling
from model.connector import Composite, Connector, Leaf
from model.errors import HitboundError
from model.tokens import Segment
from model.trace import Trace


def minimise(trace: Trace, still_violates: Callable[[Trace], bool]) -> Trace:
    """A trace of which no simplification known here violates any more. `still_violates` replays a candidate."""
    trace = _shortened(trace, still_violates)
    while True:
        simpler = next((candidate for candidate in _simpler(trace) if still_violates(candidate)), None)
        if simpler is None:
            return trace
        trace = simpler


def _shortened(trace: Trace, still_violates: Callable[[Trace], bool]) -> Trace:
    """The trace without as many neighbouring actions at a time as the violation can do without: a long trace has most
    of its actions left out in few replays."""
    length = len(trace.actions) // 2
    while length > 1:
        for first in reversed(range(0, len(trace.actions), length)):
            shorter = attrs.evolve(trace, actions=trace.actions[:first] + trace.actions[first + length :])
            if still_violates(shorter):
                trace = shorter
        length //= 2
    return trace


def size(trace: Trace) -> tuple[int, int]:
    """What makes a trace small: few actions, then few tokens."""
    texts = [segment.length for action in trace.actions if isinstance(action, Arrive) for segment in action.prompt]
    return len(trace.actions), sum(texts)


def _simpler(trace: Trace) -> Iterator[Trace]:
    """Candidates, the boldest first. One that is illegal to replay is up to the caller; one that is no configuration is
    left out here."""
    for position in reversed(range(len(trace.actions))):
        yield attrs.evolve(trace, actions=trace.actions[:position] + trace.actions[position + 1 :])
    for configuration, actions in _simpler_configurations(trace):
        yield attrs.evolve(trace, configuration=configuration, actions=actions)
    for position, action in enumerate(trace.actions):
        for simpler in _simpler_actions(action):
            yield attrs.evolve(trace, actions=(*trace.actions[:position], simpler, *trace.actions[position + 1 :]))


def _simpler_configurations(trace: Trace) -> Iterator[tuple[Configuration, tuple[Action, ...]]]:
    configuration = trace.configuration
    for connector in _simpler_connectors(configuration.connector):
        yield attrs.evolve(configuration, connector=connector), trace.actions
    for dropped in reversed(range(len(configuration.groups))):
        groups = configuration.groups[:dropped] + configuration.groups[dropped + 1 :]
        try:
            yield attrs.evolve(configuration, groups=groups), tuple(_without_group(trace.actions, dropped))
        except HitboundError:
            continue
    if configuration.steps_in_flight > 1:
        plain = tuple(
            Step(budget=action.budget) if isinstance(action, Schedule) else action for action in trace.actions
        )
        without = tuple(action for action in plain if not isinstance(action, Execute))
        yield attrs.evolve(configuration, steps_in_flight=1), without
    if configuration.scheduling is not Scheduling.FCFS:
        equal = (attrs.evolve(action, priority=0) if isinstance(action, Arrive) else action for action in trace.actions)
        yield attrs.evolve(configuration, scheduling=Scheduling.FCFS), tuple(equal)
    if configuration.drafts:
        yield attrs.evolve(configuration, drafts=configuration.drafts - 1), trace.actions
    whole = sum(segment.length for action in trace.actions if isinstance(action, Arrive) for segment in action.prompt)
    if configuration.budget < whole:
        yield attrs.evolve(configuration, budget=whole), trace.actions


def _simpler_connectors(connector: Connector | None) -> Iterator[Connector | None]:
    if connector is None:
        return
    yield None
    if isinstance(connector, Leaf) and connector.store is not None:
        if connector.store.asynchronous:
            yield attrs.evolve(connector, store=attrs.evolve(connector.store, asynchronous=False))
        if connector.store.delayed:
            yield attrs.evolve(connector, store=attrs.evolve(connector.store, delayed=False))
    if isinstance(connector, Composite):
        yield from connector.children
        for position, child in enumerate(connector.children):
            before, after = connector.children[:position], connector.children[position + 1 :]
            yield Composite(before + after)
            for simpler in _simpler_connectors(child):
                if simpler is not None:
                    yield Composite((*before, simpler, *after))


def _without_group(actions: tuple[Action, ...], dropped: int) -> Iterator[Action]:
    for action in actions:
        if isinstance(action, Step | Execute) and action.failed_blocks:
            kept = [block for block in action.failed_blocks if block.group != dropped]
            moved = (attrs.evolve(block, group=block.group - (block.group > dropped)) for block in kept)
            yield attrs.evolve(action, failed_blocks=tuple(moved))
        elif not isinstance(action, Evict | EvictObject) or action.group < dropped:
            yield action
        elif action.group > dropped:
            yield attrs.evolve(action, group=action.group - 1)


def _simpler_actions(action: Action) -> Iterator[Action]:
    match action:
        case Arrive():
            yield from _simpler_arrivals(action)
        case Step(failed_loads=failed) | Execute(failed_loads=failed) if failed:
            yield attrs.evolve(action, failed_loads=())
        case Step(failed_blocks=blocks) | Execute(failed_blocks=blocks) if blocks:
            for position in range(len(blocks)):
                yield attrs.evolve(action, failed_blocks=blocks[:position] + blocks[position + 1 :])
        case Step(rejected=rejected) | Execute(rejected=rejected) if rejected:
            for position in range(len(rejected)):
                yield attrs.evolve(action, rejected=rejected[:position] + rejected[position + 1 :])
        case Schedule():
            yield Step(budget=action.budget)
        case Drain():
            yield Step(budget=action.budget)
        case EndLoad(succeeded=False):
            yield attrs.evolve(action, succeeded=True)


def _simpler_arrivals(action: Arrive) -> Iterator[Arrive]:
    for answers in _simpler_answers(action.answers):
        yield attrs.evolve(action, answers=answers)
    if action.priority:
        yield attrs.evolve(action, priority=0)
    for output in _shorter(action.output):
        yield attrs.evolve(action, output=output)
    for prompt in _shorter(action.prompt):
        yield attrs.evolve(action, prompt=prompt)


def _shorter(segments: tuple[Segment, ...]) -> Iterator[tuple[Segment, ...]]:
    """Fewer tokens, but at least one."""
    total = sum(segment.length for segment in segments)
    for position, segment in enumerate(segments):
        before, after = segments[:position], segments[position + 1 :]
        if before or after:
            yield before + after
        for length in sorted({segment.length // 2, segment.length - 1}):
            if 0 < length < segment.length and total > 1:
                yield (*before, Segment(segment.text, length), *after)


def _simpler_answers(answers: tuple[LeafAnswers, ...]) -> Iterator[tuple[LeafAnswers, ...]]:
    for position, of_leaf in enumerate(answers):
        before, after = answers[:position], answers[position + 1 :]
        yield before + after
        if len(of_leaf.answers) > 1:
            yield (*before, LeafAnswers(of_leaf.leaf, of_leaf.answers[1:]), *after)
        last = of_leaf.answers[-1]
        for simpler in _simpler_last(last):
            yield (*before, LeafAnswers(of_leaf.leaf, (*of_leaf.answers[:-1], simpler)), *after)


def _simpler_last(answer: ScriptedAnswer) -> Iterator[ScriptedAnswer]:
    if answer.asynchronous:
        yield attrs.evolve(answer, asynchronous=False)
    for tokens in sorted({1, (answer.tokens or 0) // 2, (answer.tokens or 0) - 1}):
        if answer.tokens and 0 < tokens < answer.tokens:
            yield attrs.evolve(answer, tokens=tokens)
