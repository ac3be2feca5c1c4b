"""Decides obligations: z3 first, cvc5 on the exported text, and how much of the assumptions was needed.

Limits are resource units, never seconds, so that a verdict does not depend on the machine.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection

import attrs
import z3

from solver.laws import LEMMAS
from solver.obligation import Obligation

try:
    import cvc5
except ImportError:
    cvc5 = None

Z3_RLIMIT = 20_000_000
CVC5_RLIMIT = 2_000_000


class Outcome(enum.Enum):
    """What the solvers say about an obligation."""

    HOLDS = "holds"
    FAILS = "fails"
    VACUOUS = "vacuous"
    UNKNOWN = "unknown"


@attrs.frozen
class Decided:
    """`core` are the names of the assumptions without any of which the obligation fails (only if it holds)."""

    outcome: Outcome
    core: tuple[str, ...] = ()
    solvers: tuple[str, ...] = ("z3",)
    reason: str = ""


class Decider:
    """Decides obligations and remembers them by their text; `export` is given title and text of each, once."""

    def __init__(self, export: Callable[[str, str], None] = lambda title, text: None) -> None:
        self._known: dict[str, Decided] = {}
        self._export = export

    def decide(self, obligation: Obligation) -> Decided:
        """Whether the obligation follows from the facts about arithmetic (solver/arithmetic.py). The core avoids lemmas
        where it can."""
        text = obligation.smtlib
        if text not in self._known:
            self._export(obligation.title, text)
            self._known[text] = _decide(obligation, text)
        return self._known[text]

    def decide_exactly(self, obligation: Obligation) -> Decided:
        """Whether the obligation holds of the integers; for what `decide` found to fail."""
        meant = obligation.exact
        if meant.small and fails_for(meant, meant.small):
            return Decided(Outcome.FAILS)
        return self.decide(meant)


def follows(obligation: Obligation) -> bool:
    """Whether z3 alone finds that the obligation follows: a quick answer that is no verdict."""
    return bool(_refuted(obligation) == z3.unsat)


def fails_for(obligation: Obligation, sizes: Collection[z3.BoolRef]) -> bool:
    """Whether z3 finds an example of these sizes for which the obligation is false."""
    return bool(_check(obligation.formulas, [z3.Not(obligation.goal), *sizes]) == z3.sat)


def _decide(obligation: Obligation, text: str) -> Decided:
    answer = _refuted(obligation)
    if answer == z3.sat:
        return Decided(Outcome.FAILS)
    if answer == z3.unknown:
        return Decided(Outcome.UNKNOWN, reason=f"z3 reached its limit of {Z3_RLIMIT} resource units")
    return _confirmed(obligation, text)


def _refuted(obligation: Obligation) -> z3.CheckSatResult:
    return _check(obligation.formulas, [z3.Not(obligation.goal)])


def _confirmed(obligation: Obligation, text: str) -> Decided:
    """z3 proved it: whether it says anything, what it needed, and whether cvc5 agrees."""
    meant = obligation.exact.formulas
    example = _check(meant, obligation.small)
    if example != z3.sat:
        example = _check(meant, [])
    if example == z3.unsat:
        return Decided(Outcome.VACUOUS, reason="its assumptions exclude each other, so it says nothing")
    if example == z3.unknown:
        return Decided(Outcome.UNKNOWN, reason="no example of its assumptions was found within the limit")
    return seconded(_minimal_core(obligation), text)


def seconded(core: tuple[str, ...], text: str) -> Decided:
    """What z3 proved from `core`, given what cvc5 makes of the script."""
    if cvc5 is None:
        return Decided(Outcome.HOLDS, core)
    second = _cvc5(text)
    if second == "unsat":
        return Decided(Outcome.HOLDS, core, ("z3", "cvc5"))
    if second == "sat":
        return Decided(Outcome.UNKNOWN, core, reason="z3 and cvc5 disagree")
    return Decided(Outcome.UNKNOWN, core, reason=f"cvc5 did not decide within {CVC5_RLIMIT} resource units ({second})")


def _check(formulas: Collection[z3.BoolRef], more: Collection[z3.BoolRef]) -> z3.CheckSatResult:
    solver = z3.SimpleSolver()
    solver.set("rlimit", Z3_RLIMIT)
    solver.add(*formulas, *more)
    return solver.check()


def _minimal_core(obligation: Obligation) -> tuple[str, ...]:
    """Assumptions that are left when every one that can be spared is left out, lemmas first; in the order given."""
    solver = z3.SimpleSolver()
    solver.set("rlimit", Z3_RLIMIT)
    solver.set("core.minimize", False)
    markers = {a.name: z3.Bool(f"use {a.name}") for a in obligation.assumptions}
    solver.add(z3.Not(obligation.goal))
    solver.add(*(z3.Implies(markers[a.name], a.formula) for a in obligation.assumptions))
    kept = list(markers)
    for name in sorted(markers, key=lambda name: name not in LEMMAS):
        if name not in kept:
            continue
        rest = [other for other in kept if other != name]
        if solver.check(*(markers[other] for other in rest)) == z3.unsat:
            used = {str(marker) for marker in solver.unsat_core()}
            kept = [other for other in rest if str(markers[other]) in used]
    return tuple(kept)


def _cvc5(text: str) -> str:
    """cvc5's answer to the script: sat, unsat, or why neither."""
    terms = cvc5.TermManager()
    solver = cvc5.Solver(terms)
    solver.setOption("rlimit", str(CVC5_RLIMIT))
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "obligation")
    answer = ""
    while not (command := parser.nextCommand()).isNull():
        answer += command.invoke(solver, parser.getSymbolManager())
    return answer.strip()
