"""Admitting one waiting request that has nothing computed: look up, ask, settle, adopt.

Mirrors the body of `Scheduler.schedule` for waiting requests (vllm/v1/core/sched/scheduler.py). The policy decides;
this module carries its decisions out and keeps a record of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

import attrs

from model import store as storing
from model.actions import ScriptedAnswer
from model.adjustment import Outputs, rerun_tokens, settled, takes_nothing, usable_tokens
from model.allocation import adopt, extend
from model.chunk import first_chunk
from model.composition import Assignment, answer_of, assignments, claim_of
from model.configuration import Configuration
from model.connector import Leaf, leaves_of
from model.geometry import floor_to
from model.lookup import LocalLookup, look_up, tables_at
from model.peer import AskedAgain, Counting, PeerRules
from model.plan import Copy, Fetch, Load, Table
from model.policy import COMMON, NOTHING, PER_GROUP, Answer, Policy, Summary, tokens_used
from model.pool import EngineAssertion, Label, Pool, PoolExhausted, new_pool
from model.request import Request, Status
from model.reservation import Allotment, Need, Others, allotment, estimated
from model.rules.lookup import Truncation
from model.speculation import Batch
from model.store import Store
from model.store_rules import LoadPins
from model.tokens import Prefix
from model.values import evolve


@attrs.frozen
class Decision:
    """What the policy made of one request: everything the properties need to judge it. Tokens throughout.

    `claims` is None without a connector. `asked` is the boundary from which the connector was asked, `answer` what it
    answered, `said` what each leaf that was asked said, in order. `local` + `external` is the resume boundary R.
    `reached` is the deepest boundary up to which each group's hit blocks were taken. `backed` says whether every
    recurrent group holds state@asked. `given_up` says that a load was settled on, and given up for want of auxiliary
    outputs.
    """

    request: str
    prefix: Prefix
    claims: bool | None
    lookup: LocalLookup
    first_local: int
    diverged: bool
    asked: int
    answer: Answer
    said: tuple[Answer, ...]
    local: int
    external: int
    reached: tuple[int, ...]
    backed: bool
    given_up: bool = False

    @property
    def summary(self) -> Summary:
        return self.lookup.summary

    @property
    def resume(self) -> int:
        """R, in tokens."""
        return self.local + self.external

    @property
    def tail_dropped(self) -> bool:
        """Whether the local hit lost its partial tail to E: then its lists are cut, not looked up again."""
        unit = self.summary.scheduler_block
        loads = self.external > 0 or self.given_up
        return loads and self.first_local % unit > 0 and self.local == floor_to(self.local, unit)


@attrs.frozen
class Admission:
    """A decision that was carried out: the loads it announced, the tokens of its first chunk (0: it loads), and the
    copies of the partial tails that it hit; `allotments` has the estimate of its blocks, if there was one, `padding`
    counts the rows that were added to the chunk."""

    decision: Decision
    loads: tuple[Load, ...]
    chunk: int
    copies: tuple[Copy, ...] = ()
    allotments: tuple[Allotment, ...] = ()
    padding: int = 0


class AskAgain(Exception):
    """The connector does not know yet; the request waits and everything is asked again later."""


class PutOff(Exception):
    """The request cannot be admitted in this step, nor what waits behind it.

    `same_step_state` if it hit a recurrent state that is published, but not written, in this step.
    """

    def __init__(self, *, same_step_state: bool) -> None:
        super().__init__()
        self.same_step_state = same_step_state


def ask(
    configuration: Configuration, policy: Policy, request: Request, asked: int, stores: Mapping[str, Store]
) -> tuple[Answer, tuple[Answer, ...], Request]:
    """What the connector answers from boundary `asked`, what each leaf that was asked said, and the request with the
    asking noted on each leaf."""
    connector = configuration.connector
    if connector is None:
        return NOTHING, (), request
    leaves = list(leaves_of(connector))
    counts = dict(request.asked)
    answers: list[Answer] = []

    def ask_leaf(leaf: Leaf) -> Answer:
        answers.append(answer_as_scripted(leaf) if leaf.store is None else answer_from_store(leaf))
        return answers[-1]

    def most_of(leaf: Leaf, said: int) -> int:
        if leaf.peer is not None:
            return answer_of_peer(leaf.peer, request, said, leaf.name in request.transferred) - asked
        most = len(request.tokens) - asked
        return min(said, most - 1 if leaf.conduct.within_range else most)

    def answer_from_store(leaf: Leaf) -> Answer:
        assert leaf.store is not None
        tokens = storing.answer(configuration, leaf.store, stores[leaf.name], request.tokens, asked)
        return Answer(unknown=False, tokens=tokens, asynchronous=leaf.store.asynchronous, source=leaves.index(leaf))

    def answer_as_scripted(leaf: Leaf) -> Answer:
        script = request.answers.get(leaf.name, (ScriptedAnswer(0),))
        said = script[min(counts.get(leaf.name, 0), len(script) - 1)]
        counts[leaf.name] = counts.get(leaf.name, 0) + 1
        if said.tokens is None:
            return Answer(unknown=True, tokens=0, asynchronous=False, source=leaves.index(leaf))
        tokens = max(0, most_of(leaf, said.tokens))
        asynchronous = said.asynchronous if leaf.peer is None else leaf.peer.asynchronous
        return Answer(unknown=False, tokens=tokens, asynchronous=asynchronous, source=leaves.index(leaf))

    answer = answer_of(policy, connector, ask_leaf)
    promises = frozenset(
        (leaf.name, label)
        for said in answers
        for leaf in (leaves[said.source],)
        if leaf.store is not None and leaf.store.load_pins is LoadPins.FROM_ANSWER
        for index in range(len(configuration.groups))
        for label in storing.needed(configuration, leaf.store, index, request.tokens, asked, asked + said.tokens)
    )
    return answer, tuple(answers), evolve(request, asked=counts, promises=promises)


def held_by_peer(request: Request, said: int) -> int:
    """Tokens that the peer of a request holds if its script says `said`. It leaves the prompt's last token out, so that
    its state is one from which the request can go on (`_get_remote_prefill_token_count`)."""
    return min(said, request.prompt_length - 1)


def last_said(request: Request, leaf: Leaf) -> int:
    """What the script of the request says that the peer of `leaf` holds, in tokens."""
    return next((said.tokens for said in reversed(request.answers.get(leaf.name, ())) if said.tokens), 0)


def answer_of_peer(rules: PeerRules, request: Request, said: int, used_up: bool) -> int:
    """The boundary to which the answer of a peer leaf leads; 0 if it answers nothing."""
    if said <= 0 or (used_up and rules.asked_again is AskedAgain.NOTHING):
        return 0
    return request.prompt_length if rules.counting is Counting.PROMPT else held_by_peer(request, said)


def decide(
    configuration: Configuration,
    policy: Policy,
    pool: Pool,
    request: Request,
    stores: Mapping[str, Store],
    outputs: Outputs | None = None,
) -> tuple[Decision | None, Request]:
    """What the policy decides for the request; no decision if the connector's answer is unknown. With `outputs` a hit
    reaches no further than these are kept.

    Without a connector, or without a recurrent group that could lag, the lookup is common whatever the policy says.
    """
    claims: bool | None = None
    offered = COMMON
    if configuration.connector is not None:
        claims = claim_of(policy, configuration.connector)
        if configuration.mamba_block is not None:
            offered = policy.lookup(claims)
    N = len(request.tokens)
    searched = new_pool(len(pool.refs)) if request.skip_reading else pool
    cap = policy.cap(N) if outputs is None else min(policy.cap(N), outputs.kept)
    lookup = look_up(policy, configuration, searched, request.tokens, offered, cap)
    first_local, diverged = policy.local(lookup.summary)
    asked = policy.ask(first_local, lookup.summary)
    answer, said, request = ask(configuration, policy, request, asked, stores)
    if answer.unknown and takes_nothing(configuration, request):
        answer = NOTHING
    if answer.unknown:
        return None, request
    usable = evolve(answer, tokens=usable_tokens(configuration, request, answer.tokens))
    E = tokens_used(policy, usable, asked, lookup.summary, N)
    local, external = settled(configuration, policy, outputs, first_local, diverged, asked, E, lookup.summary, N)
    summary = lookup.summary
    each_alone = summary.lookup is PER_GROUP and summary.deepest <= summary.full_attention == first_local
    by_group = external > 0 if diverged else each_alone
    from_common = not by_group and summary.common in (first_local, local)
    junction = lookup.junction(configuration.release.junction_rule) if from_common else 0
    request = evolve(request, junction=junction)
    _, reached = tables_at(configuration, lookup, local)
    decision = Decision(
        request=request.name,
        prefix=request.tokens,
        claims=claims,
        lookup=lookup,
        first_local=first_local,
        diverged=diverged,
        asked=asked,
        answer=answer,
        said=said,
        local=local,
        external=external,
        reached=reached,
        backed=all(view.valid(asked) for view in lookup.views if view.recurrent),
        given_up=outputs is not None and external == 0 and E > first_local - asked and not diverged,
    )
    return decision, request


def admit(
    configuration: Configuration,
    policy: Policy,
    pool: Pool,
    request: Request,
    decision: Decision,
    batch: Batch,
    hidden_states: frozenset[Label],
    being_written: Set[int],
    others: Others,
    stores: Mapping[str, Store],
) -> tuple[Pool, Request, Admission]:
    """Carry a decision out. Raises PutOff, or PoolExhausted, if the request has to wait. What `others` still need is
    left free if it loads asynchronously. `being_written` are attention blocks not to be copied in this step."""
    if not 0 <= decision.local <= decision.resume <= len(request.tokens):
        raise EngineAssertion(f"L = {decision.local}, E = {decision.external}, N = {len(request.tokens)}")
    hits = _hits(configuration, decision)
    asynchronous = decision.answer.asynchronous and decision.external > 0
    chunk, padding, start = 0, 0, decision.resume
    if not asynchronous:
        start -= rerun_tokens(configuration, decision.resume)
        if start == len(request.tokens):
            raise EngineAssertion(f"nothing left to run: R = N = {decision.resume}")
        chunk, padding = first_chunk(configuration, request, start, batch)
        if chunk == 0:
            raise PutOff(same_step_state=False)
    for group, table in zip(configuration.groups, hits, strict=True):
        if group.recurrent and table and pool.labels[table[-1]] in hidden_states:
            raise PutOff(same_step_state=True)
        if not group.recurrent and decision.local % group.block and set(table[-1:]) & being_written:
            raise PutOff(same_step_state=True)
    tokens = max(decision.resume, start + chunk)
    ahead = 0 if asynchronous else configuration.lookahead
    need = Need(tokens, hits, decision.local, decision.resume, ahead)
    expected = estimated(configuration, pool, request, need, others if asynchronous else None)
    free = pool
    try:
        pool, request = adopt(configuration, pool, request, hits, decision.local, decision.external)
        pool, request, copies = extend(configuration, pool, request, decision.resume, tokens, ahead)
    except PoolExhausted:
        allotment(request.name, expected, free, None)
        raise
    allotments = allotment(request.name, expected, free, pool)
    loads = _loads(configuration, policy, pool, request, decision, asynchronous, stores)
    request = evolve(
        request,
        computed=start,
        rerun_to=decision.resume if start < decision.resume else 0,
        status=Status.LOADING if asynchronous else Status.RUNNING,
        loads=loads if asynchronous else (),
        started=False,
        transferred=request.transferred.union(_peers(configuration)),
        promises=frozenset(),
    )
    return pool, request, Admission(decision, loads, chunk, copies, allotments, padding)


def _hits(configuration: Configuration, decision: Decision) -> tuple[Table, ...]:
    """Hit blocks of every group for the boundary that was settled on. Where a partial tail was dropped they are cut, so
    a recurrent group keeps no state (`KVCacheManager.truncate_computed_blocks`)."""
    if not decision.tail_dropped:
        return tables_at(configuration, decision.lookup, decision.local)[0]
    hits, _ = tables_at(configuration, decision.lookup, decision.first_local)
    every = configuration.release.truncation is Truncation.EVERY_GROUP_COVERS
    for index, (group, table) in enumerate(zip(configuration.groups, hits, strict=True)):
        if len(table) < decision.local // group.block and (every or not group.recurrent):
            raise EngineAssertion(f"the hit list of group {index} does not reach L = {decision.local}")
    return tuple(
        table[: decision.local // group.block] for group, table in zip(configuration.groups, hits, strict=True)
    )


def _peers(configuration: Configuration) -> tuple[str, ...]:
    connector = configuration.connector
    leaves = () if connector is None else leaves_of(connector)
    return tuple(leaf.name for leaf in leaves if leaf.peer is not None)


def _loads(
    configuration: Configuration,
    policy: Policy,
    pool: Pool,
    request: Request,
    decision: Decision,
    asynchronous: bool,
    stores: Mapping[str, Store],
) -> tuple[Load, ...]:
    """What is announced to each leaf (`update_state_after_alloc`). A leaf that was told 0 tokens loads nothing, unless
    its conduct is to write all the same."""
    if configuration.connector is None or decision.external == 0:
        return ()

    def fetches(told: Assignment, end: int) -> tuple[Fetch, ...]:
        if told.leaf.store is None or told.tokens == 0:
            return ()
        storing.check_load_start(configuration, told.leaf.store, pool, request.tables, decision.local, end)
        store = stores[told.leaf.name]
        return storing.fetches(
            configuration, told.leaf.store, store, request.tokens, request.tables, decision.local, end
        )

    return tuple(
        Load(
            request=request.name,
            leaf=told.leaf,
            prefix=request.tokens,
            start=decision.local,
            end=(end := decision.local + (told.tokens or decision.external)),
            tables=request.tables,
            local=decision.reached,
            backed=decision.backed,
            asynchronous=asynchronous,
            assigned=told.tokens > 0,
            fetches=fetches(told, end),
            held=held_by_peer(request, last_said(request, told.leaf)) if told.leaf.peer is not None else 0,
            comes=told.leaf.name not in request.transferred,
        )
        for told in assignments(policy, configuration.connector, decision.answer.source, decision.external)
        if told.tokens > 0 or told.leaf.conduct.acts_unassigned
    )


def load_again(
    configuration: Configuration, policy: Policy, pool: Pool, request: Request, stores: Mapping[str, Store]
) -> tuple[Pool, Request, tuple[Load, ...]]:
    """Ask about a request whose load has completed, from where it stands, and announce what is answered
    (`AfterLoad.ASKED_AGAIN`)."""
    start = request.computed
    answer, _, request = ask(configuration, policy, request, start, stores)
    if configuration.connector is None or answer.unknown or answer.tokens == 0:
        return pool, request, ()
    end = start + answer.tokens
    pool, request, _ = extend(configuration, pool, request, start, end)
    loads = tuple(
        Load(
            request=request.name,
            leaf=told.leaf,
            prefix=request.tokens,
            start=start,
            end=end,
            tables=request.tables,
            local=(start,) * len(configuration.groups),
            backed=True,
            asynchronous=answer.asynchronous,
        )
        for told in assignments(policy, configuration.connector, answer.source, answer.tokens)
        if told.tokens > 0
    )
    if answer.asynchronous:
        request = evolve(request, status=Status.LOADING, loads=loads)
    return pool, evolve(request, computed=end), loads
