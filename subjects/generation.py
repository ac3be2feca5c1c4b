"""Random traces for the comparison with a real scheduler; a seed is the whole trace.

The shares (prompts that copy an earlier text, budgets near a block, tight pools) follow measurements on the real
scheduler.
"""

from __future__ import annotations

import random

import attrs

from model.actions import (
    Abort,
    Action,
    Arrive,
    Drain,
    EndLoad,
    Evict,
    Execute,
    LeafAnswers,
    Preempt,
    RejectedDrafts,
    Reset,
    Schedule,
    ScriptedAnswer,
    Step,
)
from model.configuration import Configuration, Eviction, Group, GroupKind, Scheduling
from model.connector import Composite, Connector, Contract, Leaf, leaves_of
from model.errors import IllegalAction
from model.policy import Policy
from model.release import Release
from model.request import Status
from model.reservation import most_blocks
from model.rules.lookup import PromptTail, ShardedHits
from model.speculation import drafts_of
from model.system import Observation, System, apply, initial
from model.tokens import Segment, begins
from model.trace import Trace
from properties.features import Feature
from properties.strategies import cut, longest_text
from subjects.model_run import ModelRun

MOST_REQUESTS = 8
"""Requests that arrive in one trace."""


def random_run(
    seed: int,
    policy: Policy,
    *,
    second_attention: GroupKind | None,
    eviction: Eviction,
    features: frozenset[Feature],
    release: Release,
    actions: int,
) -> ModelRun:
    """A trace of at most `actions` actions, each of them legal in the model under `policy`.

    `second_attention` is the kind of an attention spec beside the full-attention one, None for no second spec. The
    model follows the rules of `release`.
    """
    rng = random.Random(f"{seed} {second_attention} {eviction.value}")
    configuration = random_configuration(
        rng, second_attention=second_attention, eviction=eviction, partial_tails=Feature.PARTIAL_TAILS in features
    )
    configuration = _varied(rng, attrs.evolve(configuration, release=release), features)
    system = initial(configuration)
    done: list[Action] = []
    observed: list[tuple[Observation, ...]] = []
    texts: dict[str, tuple[Segment, ...]] = {}
    for _ in range(actions):
        arrived = bool(done) and isinstance(done[-1], Arrive)
        action = _action(rng, system, texts, arrived=arrived)
        if Feature.SKIPPED_READING in features and isinstance(action, Arrive):
            action = attrs.evolve(action, skip_reading=rng.random() < 0.3)
        if Feature.PRIORITIES in features:
            action = _contested(rng, action, configuration, len(texts))
        try:
            system, seen = apply(system, policy, action)
        except IllegalAction:
            continue
        if isinstance(action, Arrive):
            texts[action.request] = action.prompt + action.output
        done.append(action)
        observed.append(seen)
        if system.assertion:
            break
    trace = Trace(f"seed {seed}", configuration, tuple(done), source="subjects.generation")
    return ModelRun(trace, tuple(observed))


def random_configuration(
    rng: random.Random, *, second_attention: GroupKind | None, eviction: Eviction, partial_tails: bool
) -> Configuration:
    """A configuration that vLLM builds: at least two specs, no empty composite, no window of one token."""
    unit = rng.choice([1, 2, 2, 3, 4])
    full = Group(GroupKind.FULL_ATTENTION, unit * rng.choice([1, 1, 2]))
    groups = [full] * rng.choice([1, 1, 2])
    if second_attention is GroupKind.FULL_ATTENTION:
        groups.append(Group(GroupKind.FULL_ATTENTION, unit * 2 if full.block == unit else unit))
    elif second_attention is GroupKind.SLIDING_WINDOW:
        window = rng.randint(2, max(2, 4 * unit))
        wide = [1, 1, 1, 2] if partial_tails else [1, 1, 2]
        groups.append(Group(GroupKind.SLIDING_WINDOW, unit * rng.choice(wide), window))
    mamba_block = unit * rng.choice([2, 2, 3, 4]) if partial_tails else unit
    groups += [Group(GroupKind.MAMBA, mamba_block)] * rng.choice([1, 1, 2, 3] + ([0] if second_attention else []))
    rng.shuffle(groups)
    scratch = Configuration(tuple(groups), pool_blocks=2, budget=1, hash_block=unit)
    need = most_blocks(scratch, longest_text(scratch))
    return attrs.evolve(
        scratch,
        pool_blocks=1 + int(need * rng.choice([1, 1.2, 1.5, 2, 3, 3])),
        budget=rng.choice([20 * unit, scratch.scheduler_block, 2 * unit, 3 * unit, 2 * unit + 1, 5 * unit - 1, unit]),
        connector=_number(_connector(rng, 2)) if rng.random() < 0.8 else None,
        eviction=eviction,
    )


def _varied(rng: random.Random, configuration: Configuration, features: frozenset[Feature]) -> Configuration:
    """The same with some of `features`. No group drafts whose block is wider than the hash unit where hits are not
    fine-grained: vLLM gives it entries there that no lookup probes."""
    groups = list(configuration.groups)
    unit = configuration.hash_block
    if Feature.CHUNKED_LOCAL in features and rng.random() < 0.8:
        groups = [attrs.evolve(group, block=unit) for group in groups]
        groups += [Group(GroupKind.CHUNKED_LOCAL, unit, chunk=unit * rng.choice([1, 2, 2, 3]))] * rng.choice([1, 1, 2])
        rng.shuffle(groups)
    if Feature.PREFIX_REPLAY in features:
        groups = [group for group in groups if group.kind is GroupKind.FULL_ATTENTION]
        groups = groups + [Group(GroupKind.FULL_ATTENTION, 2 * groups[0].block)] * (len(set(groups)) < 2)
    if Feature.CONTEXT_PARALLEL in features:
        ranks = rng.choice([2, 2, 3])
        full = GroupKind.FULL_ATTENTION
        every = configuration.release.sharded_hits is ShardedHits.SCHEDULER_BLOCKS
        sharded = rng.choice([at for at, group in enumerate(groups) if group.kind is full])
        for at, group in enumerate(groups):
            if group.kind is full and (every or at == sharded or rng.random() < 0.7):
                groups[at] = attrs.evolve(group, block=group.block * ranks, ranks=ranks)
    if Feature.DRAFT_MODEL in features and rng.random() < 0.85:
        for index, group in enumerate(groups):
            narrow = group.block == unit or configuration.fine_grained
            if not group.recurrent and group.chunk is None and narrow and rng.random() < 0.6:
                groups[index] = attrs.evolve(group, draft=True)
    steps = 2 if Feature.STEPS_IN_FLIGHT in features else 1
    varied = attrs.evolve(
        configuration,
        groups=tuple(groups),
        pool_blocks=configuration.pool_blocks * 2,
        auxiliary_outputs=Feature.AUXILIARY_OUTPUTS in features,
        replay_window=unit * rng.choice([1, 2, 3]) + rng.choice([0, 1]) if Feature.PREFIX_REPLAY in features else 0,
        steps_in_flight=steps,
        scheduling=Scheduling.PRIORITY if Feature.PRIORITIES in features else Scheduling.FCFS,
    )
    sparse = any(group.recurrent or group.window is not None for group in groups)
    if Feature.SPARSE_RETENTION in features and sparse:
        varied = attrs.evolve(varied, retention=rng.choice([0, 0, 1, 2]) * varied.scheduler_block)
    from_032 = varied.release.prompt_tail is PromptTail.BELOW_LAST_TOKEN
    if Feature.INTERNAL_CHECKPOINT in features and varied.mamba_block and from_032 and steps == 1:
        varied = attrs.evolve(varied, checkpoint_alignment=rng.choice([unit, unit, 1, 2 * unit]))
    if Feature.SPECULATION in features:
        drafts = min(rng.choice([1, 2, 3]), (varied.mamba_block or 4) - 1)
        varied = attrs.evolve(varied, drafts=drafts, budget=max(varied.budget, 1 + drafts))
    if Feature.PRIORITIES in features:
        varied = attrs.evolve(varied, pool_blocks=1 + most_blocks(varied, longest_text(varied)) * 5 // 4)
    return varied if features - {Feature.PARTIAL_TAILS} else configuration


def _connector(rng: random.Random, depth: int) -> Connector:
    if depth and rng.random() < 0.4:
        return Composite(tuple(_connector(rng, depth - 1) for _ in range(rng.randint(1, 3))))
    claims = rng.random() < 0.7
    return Leaf("leaf", claims=claims, contract=Contract.ENDPOINT if claims else Contract.BACKED)


def _number(connector: Connector) -> Connector:
    """Give the leaves distinct names, in the order in which they are asked."""
    names = iter(range(1, 100))

    def renamed(node: Connector) -> Connector:
        if isinstance(node, Leaf):
            return attrs.evolve(node, name=f"leaf{next(names)}")
        return Composite(tuple(renamed(child) for child in node.children))

    return renamed(connector)


def _action(rng: random.Random, system: System, texts: dict[str, tuple[Segment, ...]], *, arrived: bool) -> Action:
    """What happens next; `arrived` if it was an arrival last. Several arrivals in one step share most."""
    requests = system.scheduler.requests
    loading = [name for name, r in requests.items() if r.status in (Status.LOADING, Status.ABORTED_LOADING)]
    idle = not system.scheduler.running and not system.scheduler.waiting
    roll = rng.random()
    if len(texts) < MOST_REQUESTS and (not requests or roll < (0.4 if arrived else 0.35 if idle else 0.2)):
        parents = list(texts.values())
        if arrived and rng.random() < 0.5:
            parents = parents[-1:]
        return _arrive(rng, len(texts) + 1, system.configuration, parents)
    if loading and rng.random() < 0.35:
        return EndLoad(rng.choice(loading), rng.random() < 0.75)
    roll = rng.random()
    if roll < 0.03 and requests:
        return Abort(rng.choice(list(requests)))
    if roll < 0.06:
        return Preempt()
    if roll < 0.07:
        return Reset()
    if roll < 0.3 and system.configuration.eviction is Eviction.ADVERSARIAL:
        labels = list(system.scheduler.pool.cached)
        states = [label for label in labels if system.configuration.groups[label.group].recurrent]
        if states and rng.random() < 0.5:
            # Without a state, and with the attention beside it, lookups diverge.
            labels = states
        if labels:
            label = rng.choice(labels)
            spelled = [name for name, text in system.texts.items() if begins(label.prefix, text)]
            return Evict(label.group, rng.choice(spelled), len(label.prefix))
    if roll < 0.4:
        return Drain()
    in_flight = system.scheduler.in_flight
    if system.configuration.steps_in_flight == 1:
        drafts = {name: request.drafts for name, request in requests.items() if request.drafts}
        return Step(rejected=_wrong_drafts(rng, drafts))
    full = len(in_flight) == system.configuration.steps_in_flight
    if full or (in_flight and rng.random() < 0.3):
        return Execute(rejected=_wrong_drafts(rng, drafts_of(in_flight[0].plan)))
    return Schedule()


def _wrong_drafts(rng: random.Random, drafts: dict[str, int]) -> tuple[RejectedDrafts, ...]:
    """Mostly some of the drafts are wrong; `drafts` says how many each request has."""
    wrong = {name: rng.randint(0, most) for name, most in drafts.items()} if drafts and rng.random() < 0.7 else {}
    return tuple(RejectedDrafts(name, each) for name, each in wrong.items() if each)


def _contested(rng: random.Random, action: Action, configuration: Configuration, arrived: int) -> Action:
    """What happens instead where requests have priorities: several run for some time, and mostly those that run already
    are last in turn."""
    match action:
        case Arrive():
            longer = Segment(action.output[0].text, rng.randint(1, 2 * configuration.scheduler_block))
            return attrs.evolve(action, output=(longer,), priority=rng.choice([0, -arrived, -arrived]))
        case Drain() if configuration.steps_in_flight == 1:
            return Step()
    return action


def _arrive(
    rng: random.Random, number: int, configuration: Configuration, parents: list[tuple[Segment, ...]]
) -> Arrive:
    """Request `number`, whose prompt mostly copies part of one of the texts `parents`."""
    unit = configuration.hash_block
    longest = longest_text(configuration) - 3
    shared: tuple[Segment, ...] = ()
    if parents and rng.random() < 0.8:
        parent = rng.choice(parents)
        length = min(sum(segment.length for segment in parent), longest)
        tokens = rng.choice([rng.randint(0, length), rng.randint(0, length) // unit * unit, length])
        shared = cut(parent, tokens)
    have = sum(segment.length for segment in shared)
    fresh = 0 if shared and have and rng.random() < 0.2 else rng.randint(1, max(1, longest - have))
    prompt = (*shared, Segment(f"t{number}", fresh)) if fresh else shared
    return Arrive(
        f"r{number}", prompt, (Segment(f"o{number}", rng.randint(1, 3 * unit)),), _answers(rng, configuration)
    )


def _answers(rng: random.Random, configuration: Configuration) -> tuple[LeafAnswers, ...]:
    if configuration.connector is None:
        return ()
    unit, said = configuration.hash_block, []
    for leaf in leaves_of(configuration.connector):
        script: list[ScriptedAnswer] = []
        if rng.random() < 0.15:
            script.append(ScriptedAnswer(None))
        for _ in range(rng.choice([1, 1, 1, 2])):
            roll = rng.random()
            if roll < 0.35:
                script.append(ScriptedAnswer(0))
            elif roll < 0.8:
                script.append(ScriptedAnswer(unit * rng.randint(1, 4), rng.random() < 0.4))
            else:
                script.append(ScriptedAnswer(rng.randint(1, longest_text(configuration)), rng.random() < 0.4))
        said.append(LeafAnswers(leaf.name, tuple(script)))
    return tuple(said)
