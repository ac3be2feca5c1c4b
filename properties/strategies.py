"""Hypothesis strategies: configurations of a cell, connector trees, prompts that share prefixes, answers.

Small values first, so that counterexamples shrink to blocks of 2 tokens, two groups and one leaf. What makes generated
runs interesting (shared prefixes cut on and off boundaries, budgets of a few blocks, tight pools) follows measurements
on the real scheduler.
"""

from __future__ import annotations

import functools
import itertools

import attrs
from hypothesis import strategies as st

from model.actions import LeafAnswers, ScriptedAnswer
from model.configuration import Configuration, Eviction, Group, GroupKind, LoadFailure, Scheduling, StateMode
from model.connector import Composite, Connector, Contract, Leaf, leaves_of
from model.peer import Counting, PeerRules
from model.release import NEWEST
from model.reservation import most_blocks
from model.rules.states import CheckpointStart, UnreservedCheckpoint
from model.store_rules import Guard, StoreRules
from model.tokens import Segment
from properties.features import Feature
from properties.verdict import Cell

LONGEST_TEXT = 6
"""Longest prompt with output, in scheduler blocks."""

MOST_OUTPUT = 3
"""Most output tokens of a request."""


MOST_DRAFTS = 3
"""Most drafts of a step."""


def most_output(configuration: Configuration) -> int:
    """Most output tokens of a request: more where a step may sample several."""
    return MOST_OUTPUT + configuration.drafts


def longest_text(configuration: Configuration) -> int:
    """Most tokens of one request, prompt and output."""
    return LONGEST_TEXT * configuration.scheduler_block


@functools.cache
def leaves(contract: Contract, *, claims: bool) -> st.SearchStrategy[Leaf]:
    """Leaves that keep at least `contract`, and at least ENDPOINT if they claim; they do the least that they promise.

    Half of them keep just that: a policy is judged by the weakest connector.
    """
    least = max(contract, Contract.ENDPOINT) if claims else contract
    kept = st.sampled_from([least, *(kept for kept in Contract if kept >= least)])
    return st.builds(Leaf, name=st.just("leaf"), claims=st.just(claims), contract=kept)


@functools.cache
def stores(*, claims: bool) -> st.SearchStrategy[Leaf]:
    """Leaves that keep objects, by sound rules; what they load is what ENDPOINT promises."""
    guards = st.sampled_from([Guard.REFERENCE, Guard.FENCE, Guard.OWNED])
    rules = st.builds(
        StoreRules, asynchronous=st.booleans(), delayed=st.booleans(), guard=guards, object_blocks=_OBJECT_BLOCKS
    )
    return st.builds(Leaf, st.just("store"), st.just(claims), st.just(Contract.ENDPOINT), store=rules)


@functools.cache
def peers(*, claims: bool) -> st.SearchStrategy[Leaf]:
    """Leaves that transfer from a peer, by sound rules; what they load is what FULL promises."""
    rules = st.builds(PeerRules, asynchronous=st.booleans())
    return st.builds(Leaf, st.just("peer"), st.just(claims), st.just(Contract.FULL), peer=rules)


@functools.cache
def connectors(
    contract: Contract, fixed_leaf: Leaf | None = None, features: frozenset[Feature] = frozenset()
) -> st.SearchStrategy[Connector | None]:
    """Trees of any shape, the empty composite and, now and then, no connector at all. `fixed_leaf` may stand in for any
    leaf. In a third of the trees every leaf claims: only there may a hit diverge."""
    claiming = leaves(contract, claims=True)
    plain = leaves(contract, claims=False)
    if Feature.STORES in features and contract <= Contract.ENDPOINT:
        claiming, plain = stores(claims=True) | claiming, stores(claims=False) | plain
    if Feature.PEERS in features:
        claiming, plain = peers(claims=True) | claiming, peers(claims=False) | plain
    leaf = plain | claiming
    if fixed_leaf is not None:
        leaf = st.just(fixed_leaf) | leaf
    pair, claiming_pair = _composites(leaf, 0, 3), _composites(claiming, 1, 2)
    nested, claiming_nested = _composites(leaf | pair, 0, 3), _composites(claiming | claiming_pair, 1, 2)
    deeper = _composites(leaf | nested, 1, 2)
    trees = st.one_of(leaf, claiming, pair, claiming_pair, nested, claiming_nested, deeper, leaf, st.none())
    return trees.map(_number_leaves)


def _composites(child: st.SearchStrategy[Connector], fewest: int, most: int) -> st.SearchStrategy[Connector]:
    children = st.lists(child, min_size=fewest, max_size=most)
    return children.map(lambda several: Composite(tuple(several)))


def _number_leaves(connector: Connector | None) -> Connector | None:
    """Give the leaves distinct names, in the order in which they are asked."""
    if connector is None:
        return None
    numbers = itertools.count(1)

    def renamed(node: Connector) -> Connector:
        if isinstance(node, Leaf):
            return attrs.evolve(node, name=f"{node.name}{next(numbers)}")
        return Composite(tuple(renamed(child) for child in node.children))

    return renamed(connector)


# Made once: to make a strategy costs more than to draw from it. Pools are in quarters of what one request may need,
# drafts are indexes of groups, retentions are in scheduler blocks.
_UNITS = st.sampled_from([2, 1, 3])
_WIDTHS = st.sampled_from([1, 2])
_FULL_GROUPS = st.sampled_from([1, 1, 2])
_MAMBA_GROUPS = st.sampled_from([1, 1, 2, 3, 0])
_BUDGETS = st.sampled_from(["whole prompts", "scheduler block", "1", "2", "3", "2 and 1 token"])
_CONTESTED_POOLS = st.sampled_from([4, 5])
_POOLS = st.sampled_from([12, 4, 5, 8])
_OBJECT_BLOCKS = st.sampled_from([1, 1, 2])
_MOSTLY: st.SearchStrategy[bool] = st.sampled_from([True, True, True, True, False])
_MAMBA_WIDTHS = st.sampled_from([2, 1, 4])
_STEPS = st.sampled_from([2, 2, 1, 3])
_LOAD_FAILURES = st.sampled_from([LoadFailure.RECOMPUTE, LoadFailure.FAIL])
_CHUNKS = st.sampled_from([2, 1, 3])
_DRAFTS: st.SearchStrategy[frozenset[int]] = st.sampled_from([frozenset(), frozenset({0}), frozenset({1, 2})])
_WINDOWS = st.sampled_from([3, 1, 4, 0])
_RANKS = st.sampled_from([1, 2, 3])
_RETENTIONS = st.sampled_from([None, 0, 1, 2])
_KINDS_OF_ANSWER = st.sampled_from(["synchronous", "asynchronous", "again"])


@st.composite
def configurations(
    draw: st.DrawFn,
    cell: Cell,
    eviction: Eviction,
    fixed_leaf: Leaf | None = None,
    features: frozenset[Feature] = frozenset(),
) -> Configuration:
    """Configurations of the cell's class and worker order, with connectors that keep the cell's contract. Only
    `features` are drawn beyond the plain model."""
    unit = draw(_UNITS)
    full = Group(GroupKind.FULL_ATTENTION, unit * draw(_WIDTHS))
    groups = [full] * draw(_FULL_GROUPS)
    if cell.configuration_class.second_attention_spec:
        if Feature.CHUNKED_LOCAL in features and draw(st.booleans()):
            chunk = unit * draw(_CHUNKS)
            groups = [attrs.evolve(full, block=unit)] * len(groups)
            groups.append(Group(GroupKind.CHUNKED_LOCAL, unit, chunk=chunk))
        elif draw(st.booleans()):
            groups.append(Group(GroupKind.FULL_ATTENTION, unit * 2 if full.block == unit else unit))
        else:
            window = draw(st.integers(1, 3 * unit))
            groups.append(Group(GroupKind.SLIDING_WINDOW, unit * draw(_WIDTHS), window))
    sharded = False
    if Feature.CONTEXT_PARALLEL in features and not any(group.chunk for group in groups):
        ranks = draw(_RANKS)
        sharded = ranks > 1
        groups = [_sharded(group, ranks) if draw(_MOSTLY) else group for group in groups]
    mamba_block = unit * draw(_MAMBA_WIDTHS) if Feature.PARTIAL_TAILS in features else unit
    groups += [Group(GroupKind.MAMBA, mamba_block)] * draw(_MAMBA_GROUPS)
    # Beside blocks of several ranks vLLM keeps for draft groups, and by sparse retention, what no hit reaches (REACH:
    # docs/compared-with-vllm.md).
    if Feature.DRAFT_MODEL in features and not sharded:
        drafts = draw(_DRAFTS)
        groups = [attrs.evolve(group, draft=_may_draft(group) and at in drafts) for at, group in enumerate(groups)]
    steps = draw(_STEPS) if Feature.STEPS_IN_FLIGHT in features else 1
    scratch = Configuration(tuple(groups), pool_blocks=2, budget=1, hash_block=unit, steps_in_flight=steps)
    # Hits are of whole blocks then, and chunked local attention has only those of the hits' unit.
    whole = all(group.chunk is None or group.block == scratch.scheduler_block for group in groups)
    if steps == 1 and Feature.EVERY_STATE in features and whole and draw(st.booleans()):
        scratch = attrs.evolve(scratch, state_mode=StateMode.ALL)
    elif steps == 1 and Feature.INTERNAL_CHECKPOINT in features and draw(st.booleans()):
        # From a hash boundary inside a block it is not safe, as vLLM does it from 0.30 on, nor, with drafts, where no
        # block is reserved.
        rules = attrs.evolve(
            NEWEST,
            checkpoint_start=CheckpointStart.BLOCK_BOUNDARY,
            unreserved_checkpoint=UnreservedCheckpoint.LEFT_OUT,
        )
        scratch = attrs.evolve(scratch, checkpoint_alignment=draw(_CHUNKS), release=rules)
    if Feature.AUXILIARY_OUTPUTS in features:
        scratch = attrs.evolve(scratch, auxiliary_outputs=not draw(_MOSTLY))
    if Feature.PREFIX_REPLAY in features and all(group.kind is GroupKind.FULL_ATTENTION for group in groups):
        scratch = attrs.evolve(scratch, replay_window=draw(_WINDOWS))
    if Feature.SPARSE_RETENTION in features and not sharded:
        retention = draw(_RETENTIONS)
        scratch = attrs.evolve(scratch, retention=retention and retention * scratch.scheduler_block)
    if Feature.PRIORITIES in features and draw(_MOSTLY):
        scratch = attrs.evolve(scratch, scheduling=Scheduling.PRIORITY)
    if Feature.SPECULATION in features and scratch.state_mode is StateMode.ALIGN:
        most = min(MOST_DRAFTS, (scratch.mamba_block or MOST_DRAFTS) - 1)
        verified = draw(st.integers(0, most))
        scratch = attrs.evolve(scratch, drafts=verified, budget=1 + verified)
    budgets = {
        "whole prompts": 4 * LONGEST_TEXT * unit,
        "scheduler block": scratch.scheduler_block,
        "1": unit,
        "2": 2 * unit,
        "3": 3 * unit,
        "2 and 1 token": 2 * unit + 1,
    }
    budget = max(budgets[draw(_BUDGETS)], 1 + scratch.drafts)
    pools = _CONTESTED_POOLS if scratch.scheduling is Scheduling.PRIORITY else _POOLS
    pool = 1 + most_blocks(scratch, longest_text(scratch)) * draw(pools) // 4
    return attrs.evolve(
        scratch,
        pool_blocks=pool,
        budget=budget,
        connector=draw(connectors(cell.contract, fixed_leaf, features)) if not scratch.replay_window else None,
        eviction=eviction,
        worker_order=cell.worker_order,
        load_failure=draw(_LOAD_FAILURES) if Feature.FAILED_BLOCKS in features else LoadFailure.RECOMPUTE,
    )


def _sharded(group: Group, ranks: int) -> Group:
    """The group on `ranks` context-parallel ranks, if it is one of full attention."""
    if group.kind is not GroupKind.FULL_ATTENTION:
        return group
    return attrs.evolve(group, block=group.block * ranks, ranks=ranks)


def _may_draft(group: Group) -> bool:
    return not group.recurrent and group.chunk is None


def cut(segments: tuple[Segment, ...], tokens: int) -> tuple[Segment, ...]:
    """The first `tokens` tokens of what the segments spell."""
    kept: list[Segment] = []
    for segment in segments:
        if tokens <= 0:
            break
        kept.append(Segment(segment.text, min(segment.length, tokens)))
        tokens -= segment.length
    return tuple(kept)


@st.composite
def prompts(
    draw: st.DrawFn, configuration: Configuration, earlier: tuple[tuple[Segment, ...], ...], text: str
) -> tuple[Segment, ...]:
    """A prefix of an earlier request's text, cut anywhere or on a boundary, then mostly new tokens called `text`."""
    unit = configuration.hash_block
    longest = longest_text(configuration) - most_output(configuration)
    shared: tuple[Segment, ...] = ()
    shares = draw(_MOSTLY)
    if earlier and shares:
        parent = draw(st.sampled_from(earlier))
        length = min(sum(segment.length for segment in parent), longest)
        tokens = draw(st.integers(1, length))
        shared = cut(parent, tokens - tokens % unit if tokens > unit and draw(st.booleans()) else tokens)
    room = longest - sum(segment.length for segment in shared)
    fresh = draw(st.integers(min(1, room), room))
    return (*shared, Segment(text, fresh)) if fresh else shared


@st.composite
def answers(draw: st.DrawFn, configuration: Configuration) -> tuple[LeafAnswers, ...]:
    """What each leaf without a store will say: nothing, block multiples, anything, or first "ask again"."""
    if configuration.connector is None:
        return ()
    unit = configuration.hash_block
    blocks = [count * unit for count in (1, 2, 3)]
    said: list[LeafAnswers] = []
    for leaf in leaves_of(configuration.connector):
        if leaf.store is not None:
            continue
        said_to_hold = [0, *blocks, 0, 1, 2 * unit + 1, longest_text(configuration)]
        if leaf.peer is not None and leaf.peer.counting is Counting.PROMPT:
            # All of the prompt but the token that was appended to it on the way.
            said_to_hold = [longest_text(configuration), 0]
        tokens = draw(st.sampled_from(said_to_hold))
        kind = draw(_KINDS_OF_ANSWER)
        answer = ScriptedAnswer(tokens, asynchronous=tokens > 0 and kind == "asynchronous")
        if tokens or kind == "again":
            said.append(LeafAnswers(leaf.name, (ScriptedAnswer(None), answer) if kind == "again" else (answer,)))
    return tuple(said)
