"""Mutants and other faulty policies, dishonest leaves, and what properties say about the smallest run that shows it."""

from __future__ import annotations

import attrs

from model.actions import Action, Step
from model.configuration import Configuration, WorkerOrder
from model.connector import Composite
from model.policies.mutants import (
    AnyForAll,
    CandidateRaised,
    CapN,
    EmptyCompositeClaims,
    ExternalTrimmed,
    FallbackSkipped,
    LastLoads,
    ListTrimmed,
    LosersLoad,
)
from model.policies.vllm import Vllm028
from model.policy import NOTHING, Answer, Policy, Summary
from model.ready_connectors import DISHONEST
from properties.verdict import Case
from tests.small_runs import ATTENTION_LOST, CLAIMER, FILLED, STATE_LOST, STORE, V024, V027, V028, arrive, hybrid


class LoadsLess(Vllm028):
    name = "loads-less"

    def assign(self, E: int, won: bool) -> int:
        return E - 1 if won else 0


class SourceForgotten(Vllm028):
    name = "source-forgotten"

    def choose_step(self, acc: Answer, child_answer: Answer) -> Answer:
        return attrs.evolve(super().choose_step(acc, child_answer), source=NOTHING.source)


class SkipsUnknown(Vllm028):
    name = "skips-unknown"

    def choose_step(self, acc: Answer, child_answer: Answer) -> Answer:
        return acc if acc.tokens > 0 or child_answer.unknown else child_answer


class Raises(Vllm028):
    name = "raises"

    def local(self, summary: Summary) -> tuple[int, bool]:
        if summary.deepest:
            raise ZeroDivisionError("of all things")
        return 0, False


MIXED = Composite((CLAIMER, STORE))


@attrs.frozen
class Fault:
    """On `configuration` and `actions`, `policy` violates `property`: `told` are the cases and messages."""

    property: str
    policy: Policy
    configuration: Configuration
    actions: tuple[Action, ...]
    told: list[tuple[Case | None, str]]


FAULTS = [
    Fault(
        "HIT-RESUME",
        FallbackSkipped(),
        hybrid(CLAIMER),
        (*STATE_LOST, arrive("r", 4, 3), Step()),
        [(Case.LOCAL, "r: R = 4 = L 4 + E 0; Mamba group 1 needs state@4 and reads the null block (column 1)")],
    ),
    Fault(
        "HIT-RESUME",
        V027,
        hybrid(STORE),
        (*STATE_LOST, arrive("r", 4, 3, store=2), Step()),
        [
            (
                Case.EXTERNAL,
                "r: R = 6 = L 4 + E 2; Mamba group 1 needs state@6 and reads block 6 (column 2), "
                "which held garbage (unwritten)",
            )
        ],
    ),
    Fault(
        "HIT-COVER",
        V024,
        hybrid(STORE),
        (*ATTENTION_LOST, arrive("r", 4, 3), Step()),
        [
            (
                Case.LOCAL,
                "r: R = 4 = L 4 + E 0; full-attention group 0 needs KV of [2, 4) and reads block 5 (column 1), "
                "which held garbage (unwritten)",
            )
        ],
    ),
    Fault(
        "HIT-COVER",
        V028,
        hybrid(DISHONEST["attention"]),
        (arrive("r", 4, 3, no_attention=2), Step()),
        [
            (
                Case.EXTERNAL,
                "r: R = 2 = L 0 + E 2; full-attention group 0 needs KV of [0, 2) and reads block 1 (column 0), "
                "which held garbage (unwritten)",
            )
        ],
    ),
    Fault(
        "HIT-SHRINK",
        CandidateRaised(),
        hybrid(),
        (*ATTENTION_LOST, arrive("r", 4, 3), Step()),
        # Full attention lowers the cap 6 to 2, Mamba raises it to its own hit, 4; the second round does the same.
        [
            (None, "r: spec 1 made 4 of the candidate 2"),
            (None, "r: spec 1 made 4 of the candidate 2"),
            (None, "r: the common hit 4 still changes when it is looked up once more"),
        ],
    ),
    Fault(
        "HIT-MEMBER",
        ListTrimmed(),
        hybrid(),
        (*ATTENTION_LOST, arrive("r", 4, 3), Step()),
        [(Case.LOCAL, "r: R = 2 = L 2 + E 0, but 2 is no valid boundary of Mamba group 1 (valid: 0)")],
    ),
    Fault(
        "HIT-LAST",
        CapN(),
        hybrid(),
        (*FILLED, arrive("r", 4, 0), Step()),
        [(Case.LOCAL, "r: R = 4 = L 4 + E 0, but N - 1 = 3")],
    ),
    Fault(
        "HIT-LAST",
        V028,
        hybrid(DISHONEST["range"]),
        (arrive("r", 4, 0, whole_prompt=4), Step()),
        [(Case.EXTERNAL, "r: R = 4 = L 0 + E 4, but N - 1 = 3")],
    ),
    Fault(
        "ASK-UNKNOWN",
        SkipsUnknown(),
        hybrid(MIXED),
        (arrive("r", 4, 3, claimer=None, store=2), Step()),
        [(None, "r: E = 2 is taken although a leaf does not know yet")],
    ),
    Fault(
        "HIT-AGAIN",
        FallbackSkipped(),
        hybrid(CLAIMER),
        (*STATE_LOST, arrive("r", 4, 3), Step()),
        [(None, "r: E = 0 and L stays 4; looked up again it would be 2: Mamba group 1 (valid: 2)")],
    ),
    Fault(
        "CAP-MEET",
        AnyForAll(),
        hybrid(MIXED),
        (arrive("r", 4, 0), Step()),
        [
            (None, "r: the connector claims although not every child does"),
            (None, "r: a lookup that may diverge is offered, but not every leaf claims"),
        ],
    ),
    Fault(
        "CAP-MEET",
        EmptyCompositeClaims(),
        hybrid(Composite(())),
        (arrive("r", 4, 0), Step()),
        [
            (None, "r: the connector claims although not every child does"),
            (None, "r: a lookup that may diverge is offered, but not every leaf claims"),
        ],
    ),
    Fault(
        "CAP-MEET",
        V027,
        hybrid(STORE),
        (arrive("r", 4, 0), Step()),
        [(None, "r: a lookup that may diverge is offered, but not every leaf claims")],
    ),
    Fault(
        "STATE-LABEL",
        V028,
        hybrid(DISHONEST["state"]),
        (arrive("r", 4, 3, attention_only=2), Step()),
        [
            (
                None,
                "block 2 is cached for 2 tokens (last: x1) of Mamba group 1, so it has to hold state@2; "
                "it holds garbage (unwritten)",
            )
        ],
    ),
    Fault(
        "LOAD-SOURCE",
        LosersLoad(),
        hybrid(MIXED),
        (arrive("r", 4, 3, claimer=2, store=2), Step()),
        [(None, "r: claimer, store loads, claimer stands behind the answer E = 2")],
    ),
    Fault(
        "LOAD-SOURCE",
        LastLoads(),
        hybrid(MIXED),
        (arrive("r", 4, 3, claimer=4, store=2), Step()),
        [(None, "r: store answered E = 2, the composite said 4")],
    ),
    Fault(
        "LOAD-SOURCE",
        SourceForgotten(),
        hybrid(MIXED),
        (arrive("r", 4, 3, claimer=2), Step()),
        [(None, "r: no leaf loads, no leaf stands behind the answer E = 2")],
    ),
    Fault(
        "LOAD-SOURCE",
        V028,
        hybrid(Composite((STORE, DISHONEST["unassigned"]))),
        (arrive("r", 4, 3, store=2), Step()),
        [(None, "r: meddler is told to load nothing and writes all the same")],
    ),
    Fault(
        "LOAD-ORDER",
        V028,
        hybrid(STORE, order=WorkerOrder.COPY_BEFORE_LOAD),
        (arrive("r", 4, 3, store=2), Step()),
        [
            (
                None,
                "r: R = 2 = L 0 + E 2; Mamba group 1 needs state@2 and reads block 2 (column 0), "
                "which held garbage (unwritten), before a synchronous load into it",
            )
        ],
    ),
    Fault(
        "LOAD-EXACT",
        ExternalTrimmed(),
        hybrid(STORE),
        (arrive("r", 4, 3, store=3), Step()),
        [(None, "r: asked from 0 the answer was E = 3; adopted is R = 2 = L 0 + E 2")],
    ),
    Fault(
        "GEO-INTERVAL",
        LoadsLess(),
        hybrid(Composite((STORE,))),
        (arrive("r", 4, 3, store=3), Step()),
        # The Mamba table has a block for R = 3 only.
        [
            (None, "r: store loads [0, 2), adopted is [0, 3)"),
            (None, "r: store loads [0, 2), but Mamba group 1 has no block for its end"),
        ],
    ),
]
