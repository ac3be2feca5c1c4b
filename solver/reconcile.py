"""The reconciling lookup: what the loop of model/lookup.py guarantees, given one step, the policy's `accept`.

One arbitrary spec is visited, after another arbitrary one was; so the number of specs is not bounded. The invariant:
0 <= candidate <= start of the round <= cap; if the candidate still is the round's start, every spec visited in this
round is valid there; every boundary that is valid in all specs is at most the candidate. The loop ends after a round
that lowered nothing (or at 0, which is valid everywhere), so its result is the greatest boundary valid in all specs.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import z3

from model.configuration import ConfigurationClass
from model.policy import Policy
from solver.arithmetic import remainder
from solver.forking import Exploration, ForkingRun, Site, explore
from solver.obligation import Assumption, Obligation, all_of
from solver.symbolic import SymbolicBool, SymbolicInt, term_of
from solver.world import CAP, N, S, spec_symbols

CANDIDATE = z3.Int("candidate")
RESULT = z3.Int("accepted")
ROUND_START = z3.Int("start of the round")
BOUNDARY = z3.Int("a boundary valid in all specs")
VISITED = spec_symbols("spec visited before")
SPEC = spec_symbols("spec")
RECURRENT = z3.Bool("the spec is recurrent")
FIND = z3.Function("find", z3.IntSort(), z3.IntSort())

SHRINK = "HIT-SHRINK"
ALIGNED = "loop: the candidate is the cap or a multiple of the scheduler block"

SMALL = (S == 2, N <= 12)


class _SymbolicSpec:
    """A `GroupView` of the arbitrary spec. Each bound that was searched below is noted, for its laws."""

    def __init__(self, run: ForkingRun, bounds: list[z3.ArithRef]) -> None:
        self._run = run
        self._bounds = bounds

    @property
    def recurrent(self) -> SymbolicBool:
        return self._run.truth(RECURRENT)

    @property
    def hit(self) -> SymbolicInt:
        return self._run.number(SPEC.hit)

    def find(self, bound: int | SymbolicInt) -> SymbolicInt:
        term = term_of(bound)
        if not any(term.eq(known) for known in self._bounds):
            self._bounds.append(term)
        for law in _search_laws(term):
            self._run.grant(law.formula)
        return self._run.number(FIND(term))


@attrs.frozen(eq=False)
class Step:
    """One call of `accept`, every way through it, and the bounds below which it searched."""

    result: z3.ArithRef
    exploration: Exploration[None]
    bounds: tuple[z3.ArithRef, ...]

    @property
    def formula(self) -> z3.BoolRef:
        return self.exploration.formula

    @property
    def laws(self) -> tuple[Assumption, ...]:
        """The finder's, instantiated for every search of the step, and the invariant of the loop."""
        searches = [law for bound in self.bounds for law in _search_laws(bound)]
        names = dict.fromkeys(law.name for law in searches)
        merged = (Assumption(name, all_of(law.formula for law in searches if law.name == name)) for name in names)
        return (*_BASE, *merged, *_LOOP)


def _search_laws(bound: z3.ArithRef) -> tuple[Assumption, ...]:
    found = FIND(bound)
    below = z3.And(0 <= found, z3.Or(found == 0, found <= bound))
    return (
        Assumption("finder: a search ends at or below its bound", below),
        Assumption("finder: a search ends at a valid boundary", SPEC.valid(found)),
        Assumption(
            "finder: a search finds the greatest",
            z3.And(
                *(z3.Implies(z3.And(SPEC.valid(n), 0 <= n, n <= bound), n <= found) for n in _BOUNDARIES),
                z3.Implies(found <= CAP, found <= SPEC.hit),
            ),
        ),
    )


_BOUNDARIES = (BOUNDARY, CANDIDATE, SPEC.hit)

LENGTH = (Assumption("request: at least one token", N >= 1),)

_BASE = (
    *LENGTH,
    Assumption("sizes: a scheduler block of at least one token", S > 0),
    Assumption(
        "finder: a hit is at most the cap and the request",
        z3.And(0 <= SPEC.hit, z3.Or(SPEC.hit == 0, SPEC.hit <= CAP), SPEC.hit <= N),
    ),
    Assumption("finder: a hit is a valid boundary", SPEC.valid(SPEC.hit)),
    Assumption(
        "finder: the own hit is the greatest",
        z3.And(*(z3.Implies(z3.And(SPEC.valid(n), n <= CAP), n <= SPEC.hit) for n in (BOUNDARY, CANDIDATE))),
    ),
)

_LOOP = (
    Assumption(SHRINK, z3.And(0 <= CANDIDATE, CANDIDATE <= ROUND_START, ROUND_START <= CAP)),
    Assumption("loop: specs visited accept", z3.Implies(CANDIDATE == ROUND_START, VISITED.valid(CANDIDATE))),
)

_ON_GRID = Assumption(ALIGNED, z3.Or(CANDIDATE == CAP, remainder(CANDIDATE, S) == 0))


def explore_accept(policy: Policy, whose: str = "", forced: Mapping[Site, bool] | None = None) -> Step:
    """Every feasible path through one step of the lookup. Raises PolicyError.

    `whose` tells the result of a second policy apart from that of the first.
    """
    result = z3.Int(f"accepted of {whose}") if whose else RESULT
    bounds: list[z3.ArithRef] = []

    def accept(run: ForkingRun) -> None:
        run.define(result, run.call(policy, "accept", _SymbolicSpec(run, bounds), run.number(CANDIDATE)))

    base = tuple(law.formula for law in (*_BASE, *_LOOP))
    return Step(result, explore(accept, base, forced), tuple(bounds))


def explore_cap(policy: Policy, forced: Mapping[Site, bool] | None = None) -> Exploration[None]:
    """Every feasible path through `cap` alone."""

    def cap(run: ForkingRun) -> None:
        run.define(CAP, run.call(policy, "cap", run.number(N)))

    return explore(cap, tuple(law.formula for law in LENGTH), forced)


def _obligation(step: Step, title: str, goal: z3.BoolRef, more: tuple[Assumption, ...] = ()) -> Obligation:
    return Obligation(title, (*step.laws, *more, Assumption("policy", step.formula)), goal, SMALL)


def starts(cap: Exploration[None]) -> Obligation:
    """The lookup starts from a candidate that is a number of tokens."""
    formula = cap.formula
    return Obligation("the cap is not negative", (*LENGTH, Assumption("policy", formula)), CAP >= 0, SMALL)


def shrinks(step: Step) -> Obligation:
    """HIT-SHRINK: a step accepts or lowers the candidate."""
    return _obligation(step, "a step accepts or lowers the candidate", z3.And(0 <= RESULT, RESULT <= CANDIDATE))


def keeps_members(step: Step, configuration_class: ConfigurationClass) -> Obligation:
    """HIT-MEMBER: what is left of a round that lowered nothing is valid in every spec visited."""
    return _obligation(
        step,
        "a candidate that no spec lowers is valid in every spec",
        z3.Implies(RESULT == ROUND_START, z3.And(SPEC.valid(RESULT), VISITED.valid(RESULT))),
        _class_laws(step, configuration_class),
    )


def _class_laws(step: Step, configuration_class: ConfigurationClass) -> tuple[Assumption, ...]:
    laws: list[Assumption] = []
    if not configuration_class.partial_tails:
        laws += (_ON_GRID, _aligned_hits(step))
    if not configuration_class.second_attention_spec:
        closed = z3.Implies(z3.And(CANDIDATE <= SPEC.hit, remainder(CANDIDATE, S) == 0), SPEC.valid(CANDIDATE))
        laws.append(Assumption("class: full attention is valid at blocks below its hit", z3.Or(RECURRENT, closed)))
    return tuple(laws)


def _aligned_hits(step: Step) -> Assumption:
    hits = (SPEC.hit, *(FIND(bound) for bound in step.bounds))
    return Assumption(
        "class: hits are multiples of the scheduler block", all_of(remainder(hit, S) == 0 for hit in hits)
    )


def keeps_aligned(step: Step) -> Obligation:
    """Auxiliary, without partial tails: searches aside, only the cap itself may be off the grid."""
    on_grid = z3.Or(RESULT == CAP, remainder(RESULT, S) == 0)
    return _obligation(step, ALIGNED, on_grid, (_ON_GRID, _aligned_hits(step)))


def keeps_the_greatest(step: Step) -> Obligation:
    """REACH: no step goes below a boundary that is valid in all specs."""
    common = z3.And(SPEC.valid(BOUNDARY), 0 <= BOUNDARY, BOUNDARY <= CANDIDATE)
    more = (Assumption("loop: no common boundary above the candidate", common),)
    return _obligation(step, "no step goes below a boundary that is valid in all specs", BOUNDARY <= RESULT, more)
