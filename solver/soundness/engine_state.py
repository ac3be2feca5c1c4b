"""Concrete states of the encoding as states of the model, where the model has them: between steps, none in flight.

Where it has not, it is said why.
"""

from __future__ import annotations

import attrs

from model.actions import LeafAnswers, ScriptedAnswer
from model.configuration import Configuration
from model.connector import Contract, Leaf
from model.geometry import column_ending_at, columns_for
from model.memory import UNWRITTEN, AttentionKV, Content, Memory, RecurrentState
from model.plan import Load, Table
from model.pool import NULL_BLOCK, Label, Pool
from model.release import Release
from model.request import Request, Status
from model.scheduler import Scheduler
from model.system import System
from model.tokens import Prefix, begins, tokens_of
from model.worker import Mirror, Worker
from solver.scope import Disturbance, Scope
from solver.soundness.concrete import DERIVED, SLOT_ELEMENTS, ConcreteState
from solver.soundness.instance import ARRIVALS, BLOCKS, COLUMNS, CONFIGURATION, NAMES, WIDTH
from solver.soundness.state import IDLE, LOADED, LOADING, RUNNING

EXPRESSED = frozenset(
    (
        *("refs", "full_hash", "loading", "loader", "now"),
        *("table", "filled", "awaits", "state_column"),
        *("status", "computed", "settled", "verified", "withdrawn"),
    )
)
"""Fields that a state of the model says something about; all others have to be as in an empty cache."""

CONTENT_LATER = frozenset({"seen", "last"})
"""Content once planned steps have run: with none planned, what is in memory."""

MEANING = {
    "found": "a lookup is outstanding",
    "saves": "a save is pending, and a state does not say of which store",
    "queued_writes": "a step is in flight, and a state does not say what it runs",
    "queued_reads": "a step is in flight, and a state does not say what it runs",
    "queued_copies": "a step is in flight, and a state does not say what it runs",
    "checkpoint": "a checkpoint is stored, and this configuration stores none",
    "tail_hash": "a partial tail is cached, and hits of this configuration are whole blocks",
}
"""What it means that a field is not as in an empty cache; else a step is under construction."""

DISTURBANCES = frozenset({Disturbance.ABORT, Disturbance.PREEMPT, Disturbance.RESET})

TWIN = "twin"

STORE = Leaf("store", claims=True, contract=Contract.ENDPOINT)


MORE_BLOCKS = CONFIGURATION.pool_blocks - BLOCKS
"""Blocks that the model has beside those of the instance."""


class NotExpressible(Exception):
    """The model has no such state."""


def scopes(release: Release) -> tuple[Scope, ...]:
    """What may happen in the model around the instance: its requests arrive, without a connector, and with one whose
    loads are synchronous or not; a twin of the first loads nothing, and fills the cache, or has done so before."""
    plain = attrs.evolve(CONFIGURATION, release=release)
    twin = attrs.evolve(ARRIVALS[0], request=TWIN)
    found = [Scope("three short requests", plain, (*ARRIVALS, twin), DISTURBANCES)]
    for asynchronous in (False, True):
        loads = (ScriptedAnswer(tokens, asynchronous) for tokens in (WIDTH, WIDTH - 1))
        arrivals = tuple(
            attrs.evolve(arrival, answers=(LeafAnswers(STORE.name, (answer,)),))
            for arrival, answer in zip(ARRIVALS, loads, strict=True)
        )
        name = f"three short requests, {'asynchronous' if asynchronous else 'synchronous'} loads of two"
        configuration = attrs.evolve(plain, connector=STORE)
        found.append(Scope(name, configuration, (*arrivals, twin), DISTURBANCES | {Disturbance.FAILED_LOADS}))
    return tuple(found)


def unrest(state: ConcreteState) -> tuple[str, ...]:
    """Why the model is not in such a state between two steps; empty if it is."""
    reasons = dict.fromkeys(
        MEANING.get(field, "a step is under construction")
        for field, _ in (SLOT_ELEMENTS[number] for number in state.unusual)
        if field not in EXPRESSED and field not in CONTENT_LATER and field not in DERIVED
    )
    for block in _blocks():
        if any(state.shown(content, block) != state.shown("now", block) for content in CONTENT_LATER):
            reasons["what a block holds is still to be written"] = None
    for request in _requests():
        name, status = NAMES[request], state.of("status", request)
        entries = [(request, group, column) for group in _groups() for column in range(COLUMNS)]
        if status == IDLE and any(state.of("table", entry) for entry in entries):
            reasons[f"{name} is being admitted"] = None
        if status == RUNNING and state.of("withdrawn", request):
            reasons[f"{name} runs, and what it holds counts for nothing"] = None
        if status == RUNNING and not state.of("computed", request):
            reasons[f"{name} was admitted in a step that is under construction"] = None
        computed = int(state.of("computed", request))
        if (state.of("settled", request), state.of("verified", request)) != (computed, computed):
            reasons[f"{name} has drafts, and this configuration has none"] = None
        for group in (group for group in _groups() if CONFIGURATION.groups[group].recurrent and computed and status):
            if state.of("state_column", (request, group, 0)) != column_ending_at(computed, WIDTH):
                reasons[f"the state of {name} does not lie where its tokens end"] = None
        if status == LOADED and not state.of("computed", request):
            reasons[f"{name} has loaded nothing"] = None
        past = columns_for(computed, WIDTH)
        if status != IDLE and any(state.of("table", entry) for entry in entries if entry[2] >= past):
            reasons[f"{name} has got blocks for a chunk of a step under construction"] = None
        if any(state.of("awaits", e) and not state.of("loading", state.of("table", e)) for e in entries):
            reasons[f"a load of {name} was announced and has not begun"] = None
    return tuple(reasons)


def as_system(state: ConcreteState, scope: Scope, first_taken: Table = ()) -> System:
    """The state in the configuration of the scope, in which the twin has ended; of the free blocks, `first_taken` are
    taken first. Raises NotExpressible."""
    reasons = unrest(state)
    if reasons:
        raise NotExpressible("; ".join(reasons))
    texts = {a.request: tokens_of(a.prompt) + tokens_of(a.output) for a in scope.arrivals}
    live = [request for request in _requests() if state.of("status", request) != IDLE]
    requests = {NAMES[number]: _request(state, scope, number) for number in live}
    running = tuple(name for name, request in requests.items() if request.status is Status.RUNNING)
    skipped = tuple(
        name for name, request in requests.items() if request.status not in (Status.RUNNING, Status.ABORTED_LOADING)
    )
    arrived = {name: text for name, text in texts.items() if name in requests or name == TWIN}
    pool = _pool(state, first_taken)
    for label in pool.cached:
        if len(label.prefix) % WIDTH:
            raise NotExpressible("a block is cached in full that is not full")
        if not any(begins(label.prefix, text) for text in arrived.values()):
            raise NotExpressible("something is cached of a request that has not arrived")
    memory = Memory((UNWRITTEN, *(_content(state, block) for block in _blocks()), *(UNWRITTEN,) * MORE_BLOCKS))
    mirrors = {name: _mirror(scope.configuration, requests[name]) for name in running}
    scheduler = Scheduler(scope.configuration, pool, requests, running, (), skipped)
    return System(scope.configuration, scheduler, Worker(memory, mirrors), arrived)


def _blocks() -> range:
    return range(1, BLOCKS)


def _requests() -> range:
    return range(1, len(NAMES))


def _groups() -> range:
    return range(len(CONFIGURATION.groups))


def _pool(state: ConcreteState, first_taken: Table) -> Pool:
    """Of the free blocks, those that are cached are taken before the others: then the most is lost."""
    refs = (0, *(int(state.of("refs", block)) for block in _blocks()), *(0,) * MORE_BLOCKS)
    known = (state.of("full_hash", block) for block in _blocks())
    labels: tuple[Label | None, ...] = (None, *known, *(None,) * MORE_BLOCKS)
    cached: dict[Label, Table] = {}
    for block, label in enumerate(labels):
        if label is not None:
            cached[label] = (*cached.get(label, ()), block)
    free = [block for block in range(1, len(refs)) if not refs[block]]
    free.sort(key=lambda block: (block not in first_taken, labels[block] is None))
    return Pool(refs, labels, tuple(free), cached)


def _content(state: ConcreteState, block: int) -> Content:
    shown = sorted(state.shown("now", block), key=lambda label: len(label.prefix))
    if not shown:
        return UNWRITTEN
    last = shown[-1]
    recurrent = CONFIGURATION.groups[last.group].recurrent
    start = column_ending_at(len(last.prefix), WIDTH) * WIDTH
    expected = [Label(last.group, last.prefix[:end]) for end in range(start + 1, len(last.prefix) + 1)]
    if shown != (expected[-1:] if recurrent else expected):
        raise NotExpressible(f"block {block} holds what several prefixes or groups have left in it")
    return RecurrentState(*_parts(last)) if recurrent else AttentionKV(last.group, start, last.prefix)


def _parts(label: Label) -> tuple[int, Prefix]:
    return label.group, label.prefix


def _request(state: ConcreteState, scope: Scope, number: int) -> Request:
    name, computed = NAMES[number], int(state.of("computed", number))
    arrival = next(arrival for arrival in scope.arrivals if arrival.request == name)
    prompt, output = tokens_of(arrival.prompt), tokens_of(arrival.output)
    status, withdrawn = state.of("status", number), state.of("withdrawn", number)
    sampled = computed >= len(prompt)
    request = Request(
        name=name,
        tokens=prompt + output[:1] if sampled else prompt,
        prompt_length=len(prompt),
        unsampled=output[1:] if sampled else output,
        answers={said.leaf: said.answers for said in arrival.answers},
        asked={said.leaf: 1 for said in arrival.answers},
        status=_STATUSES[status, bool(withdrawn)],
        computed=computed,
        tables=tuple(_table(state, number, group, computed) for group in _groups()),
        published=(computed // WIDTH,) * len(CONFIGURATION.groups),
        started=status == RUNNING,
    )
    return attrs.evolve(request, loads=(_load(state, scope, number, request),)) if status == LOADING else request


_STATUSES = {
    (RUNNING, False): Status.RUNNING,
    (LOADING, False): Status.LOADING,
    (LOADING, True): Status.ABORTED_LOADING,
    (LOADED, False): Status.LOADED,
    (LOADED, True): Status.LOAD_FAILED,
}


def _table(state: ConcreteState, number: int, group: int, computed: int) -> Table:
    blocks = tuple(int(state.of("table", (number, group, column))) for column in range(COLUMNS))
    held = max((column + 1 for column, block in enumerate(blocks) if block != NULL_BLOCK), default=0)
    return blocks[: max(held, columns_for(computed, WIDTH))]


def _load(state: ConcreteState, scope: Scope, number: int, request: Request) -> Load:
    """The load that fills what the request awaits."""
    if scope.configuration.connector is None:
        raise NotExpressible(f"{request.name} loads, and there is no connector")
    awaited = {
        (group, column)
        for group in _groups()
        for column in range(COLUMNS)
        if state.of("awaits", (number, group, column))
    }
    starts = [column * WIDTH for group, column in awaited if not CONFIGURATION.groups[group].recurrent]
    start = min(starts, default=request.computed)
    load = Load(
        request=request.name,
        leaf=STORE,
        prefix=request.tokens,
        start=start,
        end=request.computed,
        tables=request.tables,
        local=(start,) * len(CONFIGURATION.groups),
        backed=True,
        asynchronous=True,
    )
    filled = {(group, column) for group in _groups() for column in load.columns(group, CONFIGURATION.groups[group])}
    if filled != awaited or start >= request.computed:
        raise NotExpressible(f"no load of {request.name} fills exactly what it awaits")
    return load


def _mirror(configuration: Configuration, request: Request) -> Mirror:
    block = configuration.mamba_block
    column = None if block is None else column_ending_at(request.computed, block)
    return Mirror(request.tables, column, computed=request.computed)
