"""A worker that copies the last state before a synchronous load is complete, and the rows of drafts."""

from __future__ import annotations

import pytest

from model.actions import Arrive, LeafAnswers, Preempt, RejectedDrafts, ScriptedAnswer, Step
from model.configuration import Configuration, Group, GroupKind, WorkerOrder
from model.connector import Contract, Leaf
from model.policies import POLICIES
from model.tokens import Segment
from model.trace import Trace
from properties.replay import replay

TRACE = Trace(
    "",
    Configuration(
        (Group(GroupKind.FULL_ATTENTION, 3), Group(GroupKind.MAMBA, 6)),
        60,
        72,
        Leaf("leaf", claims=False, contract=Contract.ENDPOINT),
        worker_order=WorkerOrder.COPY_BEFORE_LOAD,
        drafts=3,
    ),
    (
        Arrive("decoding", (Segment("x", 4),), (Segment("x-out", 40),)),
        Step(),
        Step(),
        Step(),
        Arrive("loading", (Segment("y", 21),), (Segment("y-out", 3),), (LeafAnswers("leaf", (ScriptedAnswer(21),)),)),
        Step(rejected=(RejectedDrafts("decoding", 3),)),
        Preempt(),
        Step(),
    ),
)
"""Beside a request that decodes with drafts, one that is resumed has a single token left after its load of 21: it gets
a row for each draft, and the last of [21, 25) lies in the next block of 6."""


@pytest.mark.parametrize(
    ("policy", "violated", "external"), [("reference", set(), 0), ("vllm-0.33", {"HIT-RESUME", "LOAD-ORDER"}, 21)]
)
def test_no_synchronous_load_is_used_where_the_rows_of_drafts_leave_the_block(
    policy: str, violated: set[str], external: int
) -> None:
    seen = replay(TRACE, POLICIES[policy])
    decision = seen.observations[-1].decisions[-1]
    assert (decision.request, decision.external) == ("loading", external)
    assert {violation.property for violation in seen.violations} == violated
