"""Hand-written step plans for the worker and its numeric twin.

Blocks are 2 tokens wide unless said otherwise. x4 stands for the prefix x0 x1 x2 x3.
"""

from __future__ import annotations

import attrs

from model.configuration import Configuration, Group, GroupKind, WorkerOrder
from model.connector import Conduct, Contract, Leaf, StateRestored, least_conduct
from model.execution import Execution
from model.plan import Chunk, Copy, Load, StepPlan, Table
from model.tokens import Prefix, Segment, tokens_of
from model.worker import Worker, end_load, execute, new_worker

ATTENTION = Group(GroupKind.FULL_ATTENTION, 2)
MAMBA = Group(GroupKind.MAMBA, 2)
HYBRID = Configuration((ATTENTION, MAMBA), pool_blocks=12, budget=16)
ATTENTION_ONLY = Configuration((ATTENTION,), pool_blocks=12, budget=16)


@attrs.frozen
class LoadEnds:
    """An asynchronous load ends."""

    load: Load
    succeeded: bool = True


Event = StepPlan | LoadEnds


def x(tokens: int) -> Prefix:
    """The first tokens of one text."""
    return tokens_of((Segment("x", tokens),))


def windowed(window: int) -> Configuration:
    """A sliding window beside full attention, no recurrent group."""
    return Configuration((ATTENTION, Group(GroupKind.SLIDING_WINDOW, 2, window)), pool_blocks=12, budget=16)


def starts(request: str, computed: int, count: int, *tables: Table, prefix: Prefix | None = None) -> Chunk:
    """The first chunk of `request` after an admission, with its whole tables."""
    known = x(computed + count) if prefix is None else prefix
    return Chunk(request, known, computed, count, True, tables)


def goes_on(request: str, computed: int, count: int, *new_blocks: Table) -> Chunk:
    """A later chunk of `request`."""
    return Chunk(request, x(computed + count), computed, count, False, new_blocks)


def store(conduct: Conduct | None = None) -> Leaf:
    """A leaf that does what `conduct` says; by default it restores what an ENDPOINT contract promises."""
    return Leaf("store", False, Contract.ENDPOINT, conduct or least_conduct(Contract.ENDPOINT))


def load(
    start: int,
    end: int,
    *tables: Table,
    leaf: Leaf | None = None,
    local: tuple[int, ...] | None = None,
    backed: bool = True,
    asynchronous: bool = False,
    assigned: bool = True,
    fails: bool = False,
) -> Load:
    """A load of [start, end) for request "a"."""
    return Load(
        request="a",
        leaf=leaf or store(),
        prefix=x(end),
        start=start,
        end=end,
        tables=tables,
        local=local or (start,) * len(tables),
        backed=backed,
        asynchronous=asynchronous,
        assigned=assigned,
        fails=fails,
    )


def run(configuration: Configuration, events: tuple[Event, ...]) -> tuple[Worker, list[Execution]]:
    """The worker after the events, and what it reported of each step."""
    worker, executions = new_worker(configuration), []
    for event in events:
        if isinstance(event, LoadEnds):
            worker = end_load(configuration, worker, event.load, event.succeeded)
        else:
            worker, execution = execute(configuration, worker, event)
            executions.append(execution)
    return worker, executions


def in_order(configuration: Configuration, order: WorkerOrder) -> Configuration:
    """The same with another worker order."""
    return attrs.evolve(configuration, worker_order=order)


# A producer computes x0..x3 in two chunks: attention in blocks 1 and 3, state@2 in block 2, state@4 in block 4.
PRODUCER = (
    StepPlan(chunks=(starts("p", 0, 2, (1,), (2,)),), taken=(1, 2)),
    StepPlan(chunks=(goes_on("p", 2, 2, (3,), (4,)),), taken=(3, 4)),
)

ALIGNED_LOAD = (
    StepPlan(
        chunks=(starts("a", 4, 1, (1, 2, 3), (0, 5, 6)),),
        loads=(load(0, 4, (1, 2, 3), (0, 5, 6)),),
        taken=(1, 2, 3, 5, 6),
    ),
)
"""R = 4: state@4 belongs in column 1 (block 5), the chunk ends in column 2 (block 6), so the state is copied."""

UNALIGNED_LOAD = (
    StepPlan(chunks=(starts("a", 3, 1, (1, 2), (0, 5)),), loads=(load(0, 3, (1, 2), (0, 5)),), taken=(1, 2, 5)),
)
"""R = 3 and the chunk ends at 4, both in column 1: nothing is copied."""

UNALIGNED_LOAD_LEFT = (
    StepPlan(
        chunks=(starts("a", 3, 2, (1, 2, 3), (0, 5, 6)),),
        loads=(load(0, 3, (1, 2, 3), (0, 5, 6)),),
        taken=(1, 2, 3, 5, 6),
    ),
)
"""R = 3 and the chunk ends at 5: state@3 leaves column 1."""

SHARED_IN_STEP = (
    StepPlan(
        chunks=(starts("a", 0, 2, (1,)), starts("b", 2, 1, (1, 2), prefix=x(3))),
        taken=(1, 2),
    ),
)
"""b starts on the attention block that a writes in the same step."""

STATE_SHARED_IN_STEP = (
    StepPlan(
        chunks=(starts("a", 0, 2, (1,), (2,)), starts("b", 2, 1, (1, 3), (2, 4))),
        taken=(1, 2, 3, 4),
    ),
)
"""b starts from the state that a writes in the same step."""

WRONG_THROUGH_SHARING = (
    StepPlan(chunks=(starts("p", 0, 4, (3, 5)),), taken=(3, 5)),
    StepPlan(
        chunks=(starts("a", 2, 2, (1, 2)), starts("b", 4, 2, (3, 2, 4)), starts("c", 6, 1, (3, 5, 4, 6))),
        taken=(1, 2, 4, 6),
    ),
)
"""a starts on block 1, unwritten; b reads what a writes (block 2), c only what b writes (block 4)."""


SCENARIOS: dict[str, tuple[Configuration, tuple[Event, ...]]] = {
    "producer": (HYBRID, PRODUCER),
    "consumer": (HYBRID, (*PRODUCER, StepPlan(chunks=(starts("c", 4, 1, (1, 3, 5), (0, 4, 6)),), taken=(5, 6)))),
    "no state": (HYBRID, (*PRODUCER, StepPlan(chunks=(starts("c", 4, 1, (1, 3, 5), (0, 0, 6)),), taken=(5, 6)))),
    "wrong state": (HYBRID, (*PRODUCER, StepPlan(chunks=(starts("c", 4, 1, (1, 3, 5), (0, 2, 6)),), taken=(5, 6)))),
    "wrong for good": (
        HYBRID,
        (
            *PRODUCER,
            StepPlan(chunks=(starts("c", 4, 1, (1, 3, 5), (0, 2, 6)),), taken=(5, 6)),
            StepPlan(chunks=(goes_on("c", 5, 1, (), ()),)),
            StepPlan(chunks=(goes_on("c", 6, 1, (7,), (8,)),), taken=(7, 8)),
        ),
    ),
    "other prefix": (
        HYBRID,
        (
            *PRODUCER,
            StepPlan(
                chunks=(starts("c", 4, 1, (1, 3, 5), (0, 4, 6), prefix=(*x(3), "y", "z")),),
                taken=(5, 6),
            ),
        ),
    ),
    "aligned load": (HYBRID, ALIGNED_LOAD),
    "aligned load after copy": (in_order(HYBRID, WorkerOrder.COPY_BEFORE_LOAD), ALIGNED_LOAD),
    "unaligned load": (HYBRID, UNALIGNED_LOAD),
    "unaligned load after copy": (in_order(HYBRID, WorkerOrder.COPY_BEFORE_LOAD), UNALIGNED_LOAD),
    "unaligned load left": (HYBRID, UNALIGNED_LOAD_LEFT),
    "unaligned load left after copy": (in_order(HYBRID, WorkerOrder.COPY_BEFORE_LOAD), UNALIGNED_LOAD_LEFT),
    "failed load": (
        HYBRID,
        tuple(
            attrs.evolve(plan, loads=tuple(attrs.evolve(each, fails=True) for each in plan.loads))
            for plan in ALIGNED_LOAD
        ),
    ),
    "meddler": (
        HYBRID,
        (
            attrs.evolve(
                ALIGNED_LOAD[0],
                loads=(
                    load(
                        0,
                        4,
                        (1, 2, 3),
                        (0, 5, 6),
                        leaf=store(Conduct(StateRestored.ALWAYS, writes_unassigned=True)),
                        assigned=False,
                    ),
                    *ALIGNED_LOAD[0].loads,
                ),
            ),
        ),
    ),
    "asynchronous load": (
        HYBRID,
        (
            StepPlan(taken=(1, 2, 5)),
            LoadEnds(load(0, 4, (1, 2), (0, 5), asynchronous=True)),
            StepPlan(chunks=(starts("a", 4, 1, (1, 2, 3), (0, 5, 6)),), taken=(3, 6)),
        ),
    ),
    "asynchronous load not ended": (
        HYBRID,
        (
            StepPlan(
                chunks=(starts("a", 4, 1, (1, 2, 3), (0, 5, 6)),),
                loads=(load(0, 4, (1, 2), (0, 5), asynchronous=True),),
                taken=(1, 2, 3, 5, 6),
            ),
        ),
    ),
    "asynchronous load failed": (
        HYBRID,
        (
            StepPlan(taken=(1, 2, 5)),
            LoadEnds(load(0, 4, (1, 2), (0, 5), asynchronous=True), succeeded=False),
            StepPlan(chunks=(starts("a", 4, 1, (1, 2, 3), (0, 5, 6)),), taken=(3, 6)),
        ),
    ),
    "shared in step": (ATTENTION_ONLY, SHARED_IN_STEP),
    "state shared in step": (HYBRID, STATE_SHARED_IN_STEP),
    "wrong through sharing": (ATTENTION_ONLY, WRONG_THROUGH_SHARING),
    "window edge": (
        windowed(3),
        (
            StepPlan(chunks=(starts("p", 0, 4, (1, 2), (3, 4)),), taken=(1, 2, 3, 4)),
            StepPlan(chunks=(starts("c", 4, 1, (1, 2, 5), (0, 4, 6)),), taken=(5, 6)),
        ),
    ),
    "window too wide": (
        windowed(4),
        (
            StepPlan(chunks=(starts("p", 0, 4, (1, 2), (3, 4)),), taken=(1, 2, 3, 4)),
            StepPlan(chunks=(starts("c", 4, 1, (1, 2, 5), (0, 4, 6)),), taken=(5, 6)),
        ),
    ),
    "null destination": (HYBRID, (StepPlan(chunks=(starts("a", 0, 3, (1, 0), (0, 0)),), taken=(1,)),)),
    "copied tails": (
        HYBRID,
        (
            StepPlan(chunks=(starts("p", 0, 3, (1, 3), (0, 4)),), taken=(1, 3, 4)),
            StepPlan(
                chunks=(goes_on("p", 3, 1, (), ()), starts("c", 3, 1, (1, 5), (0, 6))),
                copies=(Copy(0, 3, 5, replaces=True), Copy(1, 4, 6, replaces=True)),
                taken=(5, 6),
            ),
        ),
    ),
    "copy of what is written in the step": (
        HYBRID,
        (
            StepPlan(chunks=(starts("p", 0, 2, (1,), (2,)),), taken=(1, 2)),
            StepPlan(
                chunks=(goes_on("p", 2, 1, (3,), (4,)), starts("c", 3, 1, (1, 5), (0, 6))),
                copies=(Copy(0, 3, 5, replaces=True), Copy(1, 4, 6, replaces=True)),
                taken=(3, 4, 5, 6),
            ),
        ),
    ),
    "copy of a copy": (
        HYBRID,
        (
            StepPlan(chunks=(starts("p", 0, 3, (1, 3), (0, 4)),), taken=(1, 3, 4)),
            StepPlan(
                chunks=(starts("c", 3, 1, (1, 7), (0, 6)),),
                copies=(Copy(0, 3, 5, replaces=True), Copy(0, 5, 7, replaces=True), Copy(1, 4, 6, replaces=True)),
                taken=(5, 6, 7),
            ),
        ),
    ),
    "short table": (HYBRID, (*PRODUCER, StepPlan(chunks=(starts("c", 4, 1, (1, 3, 5), (4,)),), taken=(5,)))),
    "rewound": (HYBRID, (*PRODUCER, StepPlan(chunks=(goes_on("p", 2, 1, (), ()),)))),
    "state written over": (
        HYBRID,
        (
            StepPlan(chunks=(starts("p", 0, 3, (1, 2), (0, 4)),), taken=(1, 2, 4)),
            StepPlan(chunks=(goes_on("p", 3, 1, (), ()), starts("c", 1, 1, (4,), (5,))), taken=(5,)),
        ),
    ),
    "block taken from under a request": (
        HYBRID,
        (*PRODUCER, StepPlan(chunks=(goes_on("p", 4, 1, (5,), (6,)),), taken=(1, 5, 6))),
    ),
    "two owners of a state block": (
        HYBRID,
        (
            *PRODUCER,
            StepPlan(
                chunks=(goes_on("p", 4, 1, (5,), (6,)), starts("c", 4, 1, (1, 3, 7), (0, 4, 6))),
                taken=(5, 6, 7),
            ),
            StepPlan(chunks=(goes_on("p", 5, 1, (), ()),)),
        ),
    ),
}
