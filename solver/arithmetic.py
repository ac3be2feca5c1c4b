"""Products, quotients and remainders of unknowns, as the solvers see them.

`L % scheduler_block` for every block size is nonlinear, which cvc5 often cannot decide. So such terms are built as
uninterpreted functions, with the few facts about them that proofs need. The facts are true of the integers: what
follows from them holds. What does not follow may still hold; `exact` gives the functions their meaning back.
"""

from __future__ import annotations

import z3

from solver.per_formula import PerFormula

_FACTS: PerFormula[z3.BoolRef] = PerFormula()
_EXACT: PerFormula[z3.BoolRef] = PerFormula()

_INT = z3.IntSort()
REMAINDER = z3.Function("remainder", _INT, _INT, _INT)
QUOTIENT = z3.Function("quotient", _INT, _INT, _INT)
PRODUCT = z3.Function("product", _INT, _INT, _INT)


def remainder(number: z3.ArithRef, divisor: z3.ArithRef) -> z3.ArithRef:
    """number % divisor, for a positive divisor."""
    return number % divisor if z3.is_int_value(divisor) else REMAINDER(number, divisor)


def quotient(number: z3.ArithRef, divisor: z3.ArithRef) -> z3.ArithRef:
    """number // divisor, for a positive divisor."""
    return number / divisor if z3.is_int_value(divisor) else QUOTIENT(number, divisor)


def product(a: z3.ArithRef, b: z3.ArithRef) -> z3.ArithRef:
    """a * b; the order of the factors does not matter."""
    if z3.is_int_value(a) or z3.is_int_value(b):
        return a * b
    return PRODUCT(*sorted((a, b), key=lambda factor: factor.sexpr()))


def division_facts(number: z3.ArithRef, divisor: z3.ArithRef) -> z3.BoolRef:
    """What is needed of the division of `number` by a positive divisor that is not a numeral."""
    return _FACTS.of(number == divisor, lambda: _division_facts(number, divisor))


def _division_facts(number: z3.ArithRef, divisor: z3.ArithRef) -> z3.BoolRef:
    rest = REMAINDER(number, divisor)
    times = QUOTIENT(number, divisor)
    floor = number - rest
    facts = z3.And(
        0 <= rest,
        rest < divisor,
        product(divisor, times) == floor,
        REMAINDER(floor, divisor) == 0,
        REMAINDER(product(divisor, times), divisor) == 0,
        z3.Implies(number >= 0, z3.And(floor >= 0, 0 <= times, times <= number)),
        z3.Implies(z3.And(0 <= number, number < divisor), rest == number),
    )
    return z3.Implies(divisor > 0, facts)


def exact(formula: z3.BoolRef) -> z3.BoolRef:
    """The formula with the arithmetic meaning of the three functions."""
    return _EXACT.of(formula, lambda: _exact(formula))


def _exact(formula: z3.BoolRef) -> z3.BoolRef:
    first, second = z3.Var(0, _INT), z3.Var(1, _INT)
    return z3.substitute_funs(
        formula, (REMAINDER, first % second), (QUOTIENT, first / second), (PRODUCT, first * second)
    )
