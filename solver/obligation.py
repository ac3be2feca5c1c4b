"""An obligation: named assumptions and a goal, both quantifier-free, and its text in SMT-LIB."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import z3

from solver.arithmetic import exact
from solver.per_formula import PerFormula


@attrs.frozen(eq=False)
class Assumption:
    """What an obligation may use, under the name by which a core refers to it."""

    name: str
    formula: z3.BoolRef


@attrs.frozen(eq=False)
class Obligation:
    """The assumptions imply the goal. `title` says what that means.

    `small` are sizes under which an example of the assumptions is looked for, to see that they are not contradictory.
    """

    title: str
    assumptions: tuple[Assumption, ...]
    goal: z3.BoolRef
    small: tuple[z3.BoolRef, ...] = ()

    def without(self, names: Iterable[str]) -> Obligation:
        """The obligation with fewer assumptions."""
        dropped = set(names)
        kept = tuple(assumption for assumption in self.assumptions if assumption.name not in dropped)
        return attrs.evolve(self, assumptions=kept)

    @property
    def exact(self) -> Obligation:
        """The same with products, quotients and remainders as the integers have them (solver/arithmetic.py)."""
        assumptions = tuple(Assumption(a.name, exact(a.formula)) for a in self.assumptions)
        return attrs.evolve(self, assumptions=assumptions, goal=exact(self.goal))

    @property
    def formulas(self) -> tuple[z3.BoolRef, ...]:
        """The assumptions without their names."""
        return tuple(assumption.formula for assumption in self.assumptions)

    @property
    def smtlib(self) -> str:
        """A script that is unsatisfiable exactly if the obligation holds. Equal obligations have equal texts."""
        declarations: set[str] = set()
        for formula in (*self.formulas, self.goal):
            declarations |= _declarations(formula)
        # "declare-sort" comes after "declare-fun" in the alphabet, and has to come before it in the script.
        lines = [
            "(set-logic QF_UFNIA)",
            *sorted(declarations, key=lambda text: (text.startswith("(declare-fun"), text)),
        ]
        lines += (f"(assert (! {_text(a.formula)} :named |{a.name}|))" for a in self.assumptions)
        lines += [f"(assert (! (not {_text(self.goal)}) :named |negated goal|))", "(check-sat)"]
        return "\n".join(lines) + "\n"


def any_of(formulas: Iterable[z3.BoolRef]) -> z3.BoolRef:
    """Their disjunction; of none it is false."""
    several = tuple(formulas)
    return z3.Or(*several) if several else z3.BoolVal(False)


def all_of(formulas: Iterable[z3.BoolRef]) -> z3.BoolRef:
    """Their conjunction; of none it is true."""
    several = tuple(formulas)
    return z3.And(*several) if several else z3.BoolVal(True)


_TEXTS: PerFormula[str] = PerFormula()
_DECLARATIONS: PerFormula[frozenset[str]] = PerFormula()
_SYMBOLS: PerFormula[frozenset[str]] = PerFormula()


def _text(formula: z3.BoolRef) -> str:
    return _TEXTS.of(formula, formula.sexpr)


def _declarations(formula: z3.BoolRef) -> frozenset[str]:
    """Declarations of the uninterpreted constants, functions and sorts in a formula."""
    return _DECLARATIONS.of(formula, lambda: frozenset().union(*(_declared(symbol) for symbol in _symbols(formula))))


def _declared(symbol: z3.FuncDeclRef) -> frozenset[str]:
    """Declarations of the symbol and of the sorts that it needs."""
    return _SYMBOLS.of(symbol, lambda: frozenset(_declarations_of(symbol)))


def _declarations_of(symbol: z3.FuncDeclRef) -> Iterable[str]:
    yield symbol.sexpr()
    for sort in (symbol.range(), *(symbol.domain(position) for position in range(symbol.arity()))):
        if sort.kind() == z3.Z3_UNINTERPRETED_SORT:
            yield f"(declare-sort {sort.sexpr()} 0)"


def _symbols(formula: z3.BoolRef) -> Iterable[z3.FuncDeclRef]:
    seen: set[int] = set()
    pending: list[z3.ExprRef] = [formula]
    while pending:
        term = pending.pop()
        if term.get_id() in seen:
            continue
        seen.add(term.get_id())
        declaration = term.decl()
        if declaration.kind() == z3.Z3_OP_UNINTERPRETED:
            yield declaration
        pending += term.children()
