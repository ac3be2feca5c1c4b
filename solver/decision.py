"""The decision obligations: what a policy admits is safe, given the lookups, the contract and the worker.

The policy's own functions are run on symbolic values (solver/forking.py); "policy" in a core means what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import z3

from model.configuration import ConfigurationClass, WorkerOrder
from model.connector import Contract
from model.policy import COMMON as COMMON_LOOKUP
from model.policy import NO_SOURCE, PER_GROUP, Answer, Policy, Summary
from properties.verdict import Case, Cell
from solver import laws
from solver.arithmetic import remainder
from solver.forking import Exploration, ForkingRun, Site, explore
from solver.obligation import Assumption, Obligation
from solver.world import ASYNCHRONOUS, CLAIMS, CONNECTED, SHALLOWEST, B, Decision, N, S, decision_symbols, summary_for

WEAKEST = Cell(Contract.BACKED, WorkerOrder.LOAD_BEFORE_COPY, ConfigurationClass.SECOND_ATTENTION_SPEC_PARTIAL_TAILS)
"""What holds here whatever the worker order holds in every cell."""

SMALL = (S == 2, B == 2, N <= 12)


@attrs.frozen(eq=False)
class Admission:
    """How one policy decides: its symbols, and every way through its functions."""

    decision: Decision
    exploration: Exploration[None]

    @property
    def formula(self) -> z3.BoolRef:
        """What the policy does, as one formula over its symbols."""
        return self.exploration.formula


def explore_admission(policy: Policy, whose: str = "", forced: Mapping[Site, bool] | None = None) -> Admission:
    """Every feasible path through an admission, as model/admission.py calls the policy. Raises PolicyError.

    `whose` tells the symbols of a second policy apart from those of the first.
    """
    decision = decision_symbols(whose)

    def admission(run: ForkingRun) -> None:
        length = run.number(N)
        run.define(decision.cap, run.call(policy, "cap", length))
        connected = run.decide(CONNECTED)
        lookup = run.call(policy, "lookup", run.truth(CLAIMS)) if connected else COMMON_LOOKUP
        run.define(decision.per_group, lookup is PER_GROUP)
        summary = summary_for(run, lookup)
        first_local, diverged = run.call(policy, "local", summary)
        run.define(decision.first_local, first_local)
        asked = run.call(policy, "ask", first_local, summary)
        run.define(decision.asked, asked)
        E = _usable(run, policy, decision, summary) if connected else 0
        local, external = run.call(policy, "settle", first_local, diverged, asked, E, summary, length)
        run.define(decision.local, local)
        run.define(decision.external, external)

    return Admission(decision, explore(admission, tuple(law.formula for law in explored_laws(decision)), forced))


def _usable(run: ForkingRun, policy: Policy, decision: Decision, summary: Summary) -> Any:
    """What a policy that has the part `usable` makes of the answer."""
    E = run.number(decision.E)
    if not hasattr(policy, "usable"):
        return E
    answer = Answer(False, E, run.truth(ASYNCHRONOUS), NO_SOURCE)  # type: ignore[arg-type]
    return run.call(policy, "usable", answer, run.number(decision.asked), summary, run.number(N))


def explored_laws(decision: Decision) -> tuple[Assumption, ...]:
    """The laws under which an admission is explored: those of every cell, and no lemma."""
    base = (*laws.lookup_laws(WEAKEST.configuration_class), *laws.answer_laws(decision))
    return tuple(law for law in base if law.name not in laws.LEMMAS)


def known_lemmas(decision: Decision) -> tuple[Assumption, ...]:
    """What is proved of the arguments of an admission."""
    base = (*laws.common_hit_lemmas(WEAKEST.configuration_class), *laws.answer_laws(decision))
    return tuple(law for law in base if law.name in laws.LEMMAS)


CONTRACT, ORDER, CLASS = "contract", "worker_order", "configuration_class"


@attrs.frozen(eq=False)
class Statement:
    """A property of a policy's decisions in one case; what it says depends on the cell."""

    property: str
    case: Case | None
    build: Callable[[Admission, Cell], Obligation]
    depends_on: tuple[str, ...] = ()
    """Fields of the cell that the obligation depends on."""


def _obligation(
    admission: Admission,
    cell: Cell,
    title: str,
    goal: z3.BoolRef,
    more: tuple[Assumption, ...] = (),
    when: z3.BoolRef | None = None,
) -> Obligation:
    decision = admission.decision
    case = () if when is None else (Assumption("case", when),)
    return Obligation(
        title,
        (
            *laws.lookup_laws(cell.configuration_class),
            *laws.common_hit_lemmas(cell.configuration_class),
            *laws.answer_laws(decision),
            Assumption("policy", admission.formula),
            *more,
            *case,
        ),
        goal,
        SMALL,
    )


def _when(decision: Decision, case: Case) -> z3.BoolRef:
    if case is Case.EXTERNAL:
        return decision.external > 0
    return z3.And(decision.external == 0, decision.local > 0)


def _resume(case: Case) -> Callable[[Admission, Cell], Obligation]:
    def build(admission: Admission, cell: Cell) -> Obligation:
        title = f"every recurrent group reads state@R, {case.value}"
        more = laws.state_laws(admission.decision)
        if case is Case.EXTERNAL:
            more += _load_laws(admission, cell) + laws.worker_laws(admission.decision, cell.worker_order)
        return _obligation(admission, cell, title, laws.READS_STATE, more, _when(admission.decision, case))

    return build


def _cover(case: Case) -> Callable[[Admission, Cell], Obligation]:
    def build(admission: Admission, cell: Cell) -> Obligation:
        second = cell.configuration_class.second_attention_spec
        goal = z3.And(laws.SEES_FULL, laws.SEES_SECOND) if second else laws.SEES_FULL
        title = f"every attention group sees what it needs below R, {case.value}"
        more = laws.attention_laws(admission.decision, cell.configuration_class)
        if case is Case.EXTERNAL:
            more += _load_laws(admission, cell)
        return _obligation(admission, cell, title, goal, more, _when(admission.decision, case))

    return build


def _load_laws(admission: Admission, cell: Cell) -> tuple[Assumption, ...]:
    return (*laws.strength_laws(cell.contract), laws.interval_lemma(admission.decision))


def _member(admission: Admission, cell: Cell) -> Obligation:
    decision = admission.decision
    goal = laws.valid_everywhere(decision.local, cell.configuration_class)
    title = "R is a valid boundary of every group when E = 0"
    return _obligation(admission, cell, title, goal, when=_when(decision, Case.LOCAL))


def _last(admission: Admission, cell: Cell) -> Obligation:
    return _obligation(admission, cell, "R <= N - 1", admission.decision.resume <= N - 1)


def _again(admission: Admission, cell: Cell) -> Obligation:
    decision = admission.decision
    diverged = z3.And(decision.per_group, decision.first_local > SHALLOWEST)
    truncated = decision.asked < decision.first_local
    valid = laws.valid_everywhere(decision.local, cell.configuration_class)
    title = "without a load, an L that was divergent or truncated is looked up again"
    goal = z3.Implies(z3.Or(diverged, truncated), valid)
    return _obligation(admission, cell, title, goal, when=_when(decision, Case.LOCAL))


def _meet(admission: Admission, cell: Cell) -> Obligation:
    decision = admission.decision
    title = "a lookup that may diverge is offered only to a connector that claims"
    return _obligation(admission, cell, title, z3.Implies(decision.per_group, CLAIMS), when=CONNECTED)


def _exact(admission: Admission, cell: Cell) -> Obligation:
    decision = admission.decision
    goal = z3.Implies(decision.external != 0, laws.interval_is_exact(decision))
    return _obligation(admission, cell, "a positive E is used exactly as answered, or not at all", goal)


def _interval(admission: Admission, cell: Cell) -> Obligation:
    decision = admission.decision
    goal = z3.And(0 <= decision.asked, remainder(decision.asked, S) == 0, 0 <= decision.local, 0 <= decision.external)
    title = "boundaries are not negative, and a connector is asked from a block boundary"
    return _obligation(admission, cell, title, goal)


def _order(admission: Admission, cell: Cell) -> Obligation:
    decision = admission.decision
    more = laws.worker_laws(decision, cell.worker_order)
    title = "a load is complete before its destination is read"
    return _obligation(admission, WEAKEST, title, laws.IN_TIME, more, when=_when(decision, Case.EXTERNAL))


STATEMENTS = (
    Statement("HIT-RESUME", Case.LOCAL, _resume(Case.LOCAL), (CLASS,)),
    Statement("HIT-RESUME", Case.EXTERNAL, _resume(Case.EXTERNAL), (CONTRACT, ORDER, CLASS)),
    Statement("HIT-COVER", Case.LOCAL, _cover(Case.LOCAL), (CLASS,)),
    Statement("HIT-COVER", Case.EXTERNAL, _cover(Case.EXTERNAL), (CONTRACT, CLASS)),
    Statement("HIT-MEMBER", None, _member, (CLASS,)),
    Statement("LOAD-ORDER", None, _order, (ORDER,)),
    Statement("LOAD-EXACT", None, _exact, (CLASS,)),
    Statement("GEO-INTERVAL", None, _interval, (CLASS,)),
    Statement("CAP-MEET", None, _meet),
    Statement("HIT-LAST", None, _last, (CLASS,)),
    Statement("HIT-AGAIN", None, _again, (CLASS,)),
)
