"""Symbolic numbers and truth values that stand in for ints and bools when a policy is run.

Arithmetic and comparisons build z3 terms; `bool()` of a symbolic condition asks the run which way to go. Whatever
would need a concrete value, or would silently tell a symbolic value from an int, is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import z3

from solver.arithmetic import division_facts, product, quotient, remainder

ARITHMETIC = "tokens are ints: use +, -, *, //, %, min, max and comparisons"
CONCRETE = "the proof is for every size at once; write it with comparisons, min, max, // and %"
TRUTH = "combine truth values with and, or, not"
TRUTH_AS_NUMBER = "arithmetic with a truth value"
TRUTH_AS_CHOICE = "write `x if condition else 0`"


class Run(Protocol):
    """What symbolic values need of the run that created them."""

    def decide(self, condition: z3.BoolRef) -> bool:
        """Which way this run goes at a branch on `condition`."""

    def proves(self, condition: z3.BoolRef) -> bool:
        """Whether `condition` holds for certain on the path so far."""

    def learn(self, fact: z3.BoolRef) -> None:
        """Note something that is true anyway, so that the solvers know it."""

    def refuse(self, what: str, advice: str) -> NoReturn:
        """End the run: the policy does something that cannot be made symbolic."""


class Symbolic:
    """A z3 term within a run. Two symbolic values are never told apart by identity, type or hash."""

    __slots__ = ("run", "term")

    def __init__(self, term: z3.ExprRef, run: Run) -> None:
        self.term = term
        self.run = run

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """`isinstance` falls back on this attribute; it would tell a symbolic value from an int."""
        self.run.refuse("isinstance()", "the parts of a policy receive ints and bools only; leave the test out")

    def __repr__(self) -> str:
        return f"<{self.term}>"


class SymbolicInt(Symbolic):
    """Stands in for an int."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return self.run.decide(self.term != 0)

    def __eq__(self, other: object) -> Any:
        return self._equal(other)

    def __ne__(self, other: object) -> Any:
        equal = self._equal(other)
        return SymbolicBool(z3.Not(equal.term), self.run) if type(equal) is SymbolicBool else not equal

    def _equal(self, other: object) -> Any:
        equal = self._compare(other, lambda a, b: a == b)
        return False if equal is NotImplemented else equal

    def __lt__(self, other: object) -> Any:
        return self._compare(other, lambda a, b: a < b)

    def __le__(self, other: object) -> Any:
        return self._compare(other, lambda a, b: a <= b)

    def __gt__(self, other: object) -> Any:
        return self._compare(other, lambda a, b: a > b)

    def __ge__(self, other: object) -> Any:
        return self._compare(other, lambda a, b: a >= b)

    def __add__(self, other: object) -> Any:
        return self._combine(other, lambda a, b: a + b)

    def __sub__(self, other: object) -> Any:
        return self._combine(other, lambda a, b: a - b)

    def __mul__(self, other: object) -> Any:
        return self._combine(other, product)

    def __radd__(self, other: object) -> Any:
        return self._combine(other, lambda a, b: b + a)

    def __rsub__(self, other: object) -> Any:
        return self._combine(other, lambda a, b: b - a)

    def __rmul__(self, other: object) -> Any:
        return self._combine(other, product)

    def __neg__(self) -> SymbolicInt:
        return SymbolicInt(-self.term, self.run)

    def __pos__(self) -> SymbolicInt:
        return self

    def __abs__(self) -> SymbolicInt:
        return SymbolicInt(z3.If(self.term < 0, -self.term, self.term), self.run)

    def __floordiv__(self, other: object) -> Any:
        return self._combine(other, lambda a, b: self._divide(quotient, a, b))

    def __mod__(self, other: object) -> Any:
        return self._combine(other, lambda a, b: self._divide(remainder, a, b))

    def __rfloordiv__(self, other: object) -> Any:
        return self._combine(other, lambda a, b: self._divide(quotient, b, a))

    def __rmod__(self, other: object) -> Any:
        return self._combine(other, lambda a, b: self._divide(remainder, b, a))

    def __divmod__(self, other: object) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def _divide(self, operation: Callable[[Any, Any], Any], number: z3.ArithRef, divisor: z3.ArithRef) -> z3.ArithRef:
        """SMT-LIB's div and mod agree with Python's // and % for positive divisors only."""
        if z3.is_int_value(divisor) and divisor.as_long() == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        if not self.run.proves(divisor > 0):
            self.run.refuse(f"division by {divisor}", "divide only by what is positive for certain (scheduler_block)")
        if not z3.is_int_value(divisor):
            self.run.learn(division_facts(number, divisor))
        return operation(number, divisor)

    def _compare(self, other: object, relation: Callable[[Any, Any], Any]) -> Any:
        term = self._lift(other)
        return NotImplemented if term is None else SymbolicBool(relation(self.term, term), self.run)

    def _combine(self, other: object, operation: Callable[[Any, Any], Any]) -> Any:
        term = self._lift(other)
        return NotImplemented if term is None else SymbolicInt(operation(self.term, term), self.run)

    def _lift(self, other: object) -> z3.ArithRef | None:
        kind = type(other)
        if kind is SymbolicInt:
            return other.term  # type: ignore[attr-defined]
        if kind is int:
            return z3.IntVal(other)
        if kind is float:
            self.run.refuse(f"the float {other}", "tokens are ints: use // instead of / and whole numbers")
        if kind is bool or kind is SymbolicBool:
            self.run.refuse(TRUTH_AS_NUMBER, TRUTH_AS_CHOICE)
        return None


class SymbolicBool(Symbolic):
    """Stands in for a bool."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return self.run.decide(self.term)

    def __eq__(self, other: object) -> Any:
        return self._equal(other)

    def __ne__(self, other: object) -> Any:
        equal = self._equal(other)
        return SymbolicBool(z3.Not(equal.term), self.run) if type(equal) is SymbolicBool else not equal

    def _equal(self, other: object) -> Any:
        kind = type(other)
        if kind is SymbolicBool:
            return SymbolicBool(self.term == other.term, self.run)  # type: ignore[attr-defined]
        if kind is bool:
            return SymbolicBool(self.term if other else z3.Not(self.term), self.run)
        if kind in (int, float, SymbolicInt):
            self.run.refuse("comparing a truth value with a number", "write `if condition`")
        return False


def _refusing(what: str, advice: str) -> Callable[..., NoReturn]:
    def refuse(self: Symbolic, *_: object) -> NoReturn:
        self.run.refuse(what, advice)

    return refuse


_NEEDS_A_CONCRETE_VALUE = {
    "__hash__": "a dict key, a set element or hash()",
    "__int__": "int()",
    "__index__": "range() or an index",
    "__float__": "float()",
    "__complex__": "complex()",
    "__round__": "round()",
    "__trunc__": "math.trunc()",
    "__floor__": "math.floor()",
    "__ceil__": "math.ceil()",
}
_BIT_OPERATIONS = {"and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>"}
_NOT_FOR_TOKENS = {"truediv": "/", "pow": "**", "matmul": "@"}
_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "divmod", "matmul")


def _refuse_the_rest() -> None:
    for name, what in _NEEDS_A_CONCRETE_VALUE.items():
        setattr(Symbolic, name, _refusing(what, CONCRETE))
    for kind in (SymbolicInt, SymbolicBool):
        setattr(kind, "__hash__", Symbolic.__hash__)  # noqa: B010, mypy knows that classes with __eq__ have none
        setattr(kind, "__invert__", _refusing("the bit operation ~", TRUTH))  # noqa: B010
        for operation, sign in _BIT_OPERATIONS.items():
            for name in (f"__{operation}__", f"__r{operation}__"):
                setattr(kind, name, _refusing(f"the bit operation {sign}", TRUTH))
    for operation, sign in _NOT_FOR_TOKENS.items():
        for name in (f"__{operation}__", f"__r{operation}__"):
            setattr(SymbolicInt, name, _refusing(f"the operation {sign}", ARITHMETIC))
    reflected = tuple(f"r{operation}" for operation in _ARITHMETIC)
    for operation in (*_ARITHMETIC, *reflected, "neg", "pos", "abs", "lt", "le", "gt", "ge"):
        setattr(SymbolicBool, f"__{operation}__", _refusing(TRUTH_AS_NUMBER, TRUTH_AS_CHOICE))


_refuse_the_rest()


def term_of(value: Any) -> Any:
    """The z3 term of an int, a bool or a symbolic value."""
    kind = type(value)
    if kind is bool:
        return z3.BoolVal(value)
    if kind is int:
        return z3.IntVal(value)
    return value.term
