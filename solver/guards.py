"""Dropped guards: each branch of a policy is forced either way, to see which obligation notices."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs

from model.errors import PolicyError
from model.policy import Policy
from properties.verdict import Case, Cell
from solver import answers, equivalence, reconcile
from solver.answers import Choice
from solver.decide import follows
from solver.decision import Admission, Statement, explore_admission
from solver.forking import Exploration, Site
from solver.obligation import Obligation
from solver.reconcile import Step, explore_accept


class Fate(enum.Enum):
    """What dropping a guard does: an obligation fails; nothing changes; decisions change, but no obligation fails.

    A branch usually has one safe way: forced that way it is IDLE, and the policy reports less than it could.
    """

    NOTICED = "an obligation fails"
    EQUIVALENT = "equivalent"
    IDLE = "idle"


@attrs.frozen
class DroppedGuard:
    """The branch at `site` always goes `forced`. If that is noticed, `property` (in `case` and `cell`) fails."""

    site: Site
    forced: bool
    fate: Fate
    property: str = ""
    case: Case | None = None
    cell: Cell | None = None

    def __str__(self) -> str:
        return f"{self.site} always {self.forced}: {self.fate.value}"


Forced = Mapping[Site, bool]
Check = tuple[str, Case | None, Cell | None, Obligation]


def drop_in_admission(
    policy: Policy, admission: Admission, held: Iterable[tuple[Statement, Cell]]
) -> Iterator[DroppedGuard]:
    """Guards of the parts that an admission calls; `held` are the statements that were proved of the policy."""
    kept = tuple(held)

    def checks(variant: Admission) -> Iterator[Check]:
        for statement, cell in kept:
            where = cell if statement.depends_on else None
            yield statement.property, statement.case, where, statement.build(variant, cell)

    yield from _drop(
        admission.exploration,
        lambda forced: explore_admission(policy, forced=forced),
        lambda variant: variant.exploration,
        checks,
        lambda forced: equivalence.same_admission(admission, explore_admission(policy, equivalence.OTHER, forced)),
    )


def drop_in_lookup(policy: Policy, step: Step, held: Iterable[Cell]) -> Iterator[DroppedGuard]:
    """Guards of `accept`; `held` are the cells in which HIT-MEMBER was proved."""
    classes = dict.fromkeys(cell.configuration_class for cell in held)

    def checks(variant: Step) -> Iterator[Check]:
        yield "HIT-SHRINK", None, None, reconcile.shrinks(variant)
        for configuration_class in classes:
            yield "HIT-MEMBER", None, None, reconcile.keeps_members(variant, configuration_class)
        yield "REACH", None, None, reconcile.keeps_the_greatest(variant)

    yield from _drop(
        step.exploration,
        lambda forced: explore_accept(policy, forced=forced),
        lambda variant: variant.exploration,
        checks,
        lambda forced: equivalence.same_step(step, explore_accept(policy, equivalence.OTHER, forced)),
    )


def drop_in_composition(policy: Policy, choice: Choice | None, assign: Exploration[None]) -> Iterator[DroppedGuard]:
    """Guards of `choose_step` and `assign`."""
    if choice is not None:
        original = choice

        def choice_checks(variant: Choice) -> Iterator[Check]:
            for obligation in answers.step_obligations(variant):
                yield "LOAD-SOURCE", None, None, obligation
            yield "ASK-UNKNOWN", None, None, answers.asks_again(variant)

        yield from _drop(
            choice.exploration,
            lambda forced: answers.explore_step(policy, forced=forced),
            lambda variant: variant.exploration,
            choice_checks,
            lambda forced: equivalence.same_choice(original, answers.explore_step(policy, equivalence.OTHER, forced)),
        )
    yield from _drop(
        assign,
        lambda forced: answers.explore_assign(policy, forced=forced),
        lambda variant: variant,
        lambda variant: iter([("LOAD-SOURCE", None, None, answers.only_the_winner_loads(variant))]),
        lambda forced: equivalence.same_assignment(assign, answers.explore_assign(policy, equivalence.OTHER, forced)),
    )


def _drop(
    original: Exploration[None],
    explore: Callable[[Forced], object],
    exploration_of: Callable[..., Exploration[None]],
    checks: Callable[..., Iterator[Check]],
    same: Callable[[Forced], Obligation],
) -> Iterator[DroppedGuard]:
    for site in sorted(original.sites):
        for value in (True, False):
            forced = {site: value}
            try:
                variant = explore(forced)
            except PolicyError:
                yield DroppedGuard(site, value, Fate.NOTICED, "POLICY-TOTAL")
                continue
            exploration = exploration_of(variant)
            if exploration.endless or exploration.raising:
                yield DroppedGuard(site, value, Fate.NOTICED, "POLICY-TOTAL")
                continue
            failed = next((check for check in checks(variant) if not follows(check[3])), None)
            if failed is not None:
                property, case, cell, _ = failed
                yield DroppedGuard(site, value, Fate.NOTICED, property, case, cell)
            else:
                fate = Fate.EQUIVALENT if follows(same(forced)) else Fate.IDLE
                yield DroppedGuard(site, value, fate)
