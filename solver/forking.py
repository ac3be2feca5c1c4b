"""Runs a Python function on symbolic values, once for every feasible way through its branches.

Each run follows a prefix of recorded decisions, then decides anew: a branch that can go one way only is recorded all
the same, and both ways are kept when the solver does not know. A run whose conditions differ from the recorded ones
shows that the function keeps state; it is refused. The branches that were left out as infeasible are returned, so that
a second solver can confirm them.
"""

from __future__ import annotations

import functools
import inspect
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any, Generic, NoReturn, TypeVar

import attrs
import z3

from model.errors import PolicyError
from model.policy import Policy
from properties import policy_guard
from properties.policy_guard import PolicyLoops, PolicyRaised
from solver import symbolic
from solver.obligation import all_of, any_of
from solver.restrictions import restriction_in
from solver.symbolic import SymbolicBool, SymbolicInt, term_of

T = TypeVar("T")

DECISIONS = 64
"""Branches that one run may take; a loop over symbolic values takes one per round."""
PATHS = 512
RLIMIT = 400_000
"""z3 resource units for one question about one branch; on the limit both ways are kept."""

_ROOT = pathlib.Path(__file__).parent.parent
_ENGINE = {pathlib.Path(__file__).parent, pathlib.Path(policy_guard.__file__).parent}
_LIBRARIES = tuple(pathlib.Path(inspect.getfile(library)).parent for library in (attrs.field, z3))
_STANDARD_LIBRARY = pathlib.Path(inspect.getfile(inspect)).parent


@attrs.frozen(order=True)
class Site:
    """Where a policy branches on a symbolic condition. `column` and `line` as in the source, both from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        path = pathlib.Path(self.file)
        shown = path.relative_to(_ROOT) if path.is_relative_to(_ROOT) else path
        return f"{shown}:{self.line}:{self.column}"


@attrs.frozen(eq=False)
class Decision:
    """At a branch on `condition` the run went `taken`; `other_way` says whether the other way is feasible too.

    `before` is all that held on the path until then, this condition included.
    """

    before: tuple[z3.BoolRef, ...]
    condition: z3.BoolRef
    taken: bool
    other_way: bool

    @property
    def literal(self) -> z3.BoolRef:
        return self.condition if self.taken else z3.Not(self.condition)


@attrs.frozen(eq=False)
class Path(Generic[T]):
    """One way through the function: what holds on it, and what the function returned, or why it did not.

    Exactly one of `result`, `raised` and `endless` is set; `result` may itself be None.
    """

    conditions: tuple[z3.BoolRef, ...]
    result: T | None = None
    raised: PolicyRaised | None = None
    endless: str = ""

    @property
    def ended(self) -> bool:
        """Whether the function returned."""
        return self.raised is None and not self.endless


@attrs.frozen(eq=False)
class Exploration(Generic[T]):
    """All feasible paths, the branches left out as infeasible (each as a formula), and where the function branches."""

    paths: tuple[Path[T], ...]
    infeasible: tuple[z3.BoolRef, ...]
    sites: frozenset[Site]
    formula: z3.BoolRef = attrs.field()
    """What the function does where it returns, over the constants that it defined."""
    raises: z3.BoolRef = attrs.field()
    """Where it raises."""

    @formula.default
    def _returning(self) -> z3.BoolRef:
        return any_of(all_of(path.conditions) for path in self.paths if path.ended)

    @raises.default
    def _raising(self) -> z3.BoolRef:
        return any_of(all_of(path.conditions) for path in self.raising)

    @property
    def endless(self) -> str:
        """Why not everything was explored; empty if everything was."""
        return next((path.endless for path in self.paths if path.endless), "")

    @property
    def raising(self) -> tuple[Path[T], ...]:
        return tuple(path for path in self.paths if path.raised is not None)


class _Refused(BaseException):
    """Not an Exception, so that a policy that catches those cannot hide it."""


class _TooLong(BaseException):
    """The run takes too many branches."""


class _Infeasible(BaseException):
    """No way on: an earlier branch was kept only because the solver did not know."""


def explore(
    function: Callable[[ForkingRun], T], laws: tuple[z3.BoolRef, ...], forced: Mapping[Site, bool] | None = None
) -> Exploration[T]:
    """Every feasible path of `function` under `laws`. Raises PolicyError for what cannot be made symbolic.

    The branches of `forced` always go the given way, and nothing is learnt from that: the guard is dropped.
    """
    solver = z3.SimpleSolver()
    solver.set("rlimit", RLIMIT)
    solver.add(*laws)
    paths: list[Path[T]] = []
    infeasible: list[z3.BoolRef] = []
    sites: set[Site] = set()
    prefixes: list[tuple[Decision, ...]] = [()]
    while prefixes:
        if len(paths) == PATHS:
            paths.append(Path((), endless=f"it splits into more than {PATHS} cases; merge branches with min or max"))
            break
        prefix = prefixes.pop()
        run = ForkingRun(solver, prefix, forced or {})
        path = _follow(function, run)
        sites |= run.sites
        infeasible += run.infeasible
        for index in range(len(prefix), len(run.decisions)):
            decision = run.decisions[index]
            if decision.other_way:
                prefixes.append((*run.decisions[:index], attrs.evolve(decision, taken=not decision.taken)))
        if path is None:
            continue
        paths.append(path)
        if path.ended and not forced:
            _check_repeatable(function, run, path)
    return Exploration(tuple(paths), tuple(infeasible), frozenset(sites))


def _follow(function: Callable[[ForkingRun], T], run: ForkingRun) -> Path[T] | None:
    run.solver.push()
    result: T | None = None
    raised: PolicyRaised | None = None
    endless = ""
    try:
        result = function(run)
    except PolicyRaised as error:
        raised = error
    except PolicyLoops as error:
        endless = str(error)
    except _TooLong:
        endless = f"it branches more than {DECISIONS} times on one path; write the loop without symbolic conditions"
    except _Infeasible:
        return None
    except _Refused:
        pass
    finally:
        run.solver.pop()
    if run.refusal:
        raise PolicyError(run.refusal)
    return Path(tuple(run.conditions), result, raised, endless)


def _check_repeatable(function: Callable[[ForkingRun], T], run: ForkingRun, path: Path[T]) -> None:
    again = ForkingRun(run.solver, tuple(run.decisions), run.forced)
    repeated = _follow(function, again)
    if repeated is None or not repeated.ended:
        raise PolicyError(f"{again.place}: {STATEFUL}")
    differing = _first_difference(run.conditions, again.conditions)
    if differing is not None:
        raise PolicyError(f"{[*again.places, again.place][differing]}: {STATEFUL}")


def _first_difference(recorded: Sequence[z3.BoolRef], repeated: Sequence[z3.BoolRef]) -> int | None:
    """Index of the first condition that differs, or that only one of the runs has."""
    for index, (one, other) in enumerate(zip(recorded, repeated, strict=False)):
        if one.get_id() != other.get_id():
            return index
    return None if len(recorded) == len(repeated) else min(len(recorded), len(repeated))


STATEFUL = (
    "the policy gives different results for the same arguments; its parts must be pure functions: keep no state "
    "between calls"
)


class ForkingRun:
    """One run: creates symbolic values and decides their branches. Implements `solver.symbolic.Run`."""

    def __init__(self, solver: z3.Solver, prefix: tuple[Decision, ...], forced: Mapping[Site, bool]) -> None:
        self.solver = solver
        self.forced = forced
        self.decisions: list[Decision] = []
        self.conditions: list[z3.BoolRef] = []
        self.places: list[str] = []
        """For each condition the function of the policy that was entered last before."""
        self.place = "the policy"
        self.infeasible: list[z3.BoolRef] = []
        self.sites: set[Site] = set()
        self.refusal = ""
        self._prefix = prefix
        self._known: set[int] = set()
        """Identities of `conditions`; z3 has one for equal formulas, as long as one of them is kept."""

    def number(self, term: z3.ArithRef) -> SymbolicInt:
        return SymbolicInt(term, self)

    def truth(self, term: z3.BoolRef) -> SymbolicBool:
        return SymbolicBool(term, self)

    def call(self, policy: Policy, part: str, *arguments: Any) -> Any:
        """What the part returns for symbolic arguments. Raises PolicyError, PolicyRaised or PolicyLoops."""
        return policy_guard.call(
            policy,
            part,
            arguments,
            tokens=(int, SymbolicInt),
            truths=(bool, SymbolicBool),
            counts=self.counts,
        )

    def define(self, constant: z3.ExprRef, value: Any) -> None:
        """On this path the constant stands for the value (an int, a bool or a symbolic value)."""
        self.learn(constant == term_of(value))

    def proves(self, condition: z3.BoolRef) -> bool:
        return bool(self._check(z3.Not(condition)) == z3.unsat)

    def refuse(self, what: str, advice: str) -> NoReturn:
        place = _place(sys._getframe())
        self.refusal = self.refusal or f"{place}: {what} cannot be made symbolic; {advice}"
        raise _Refused

    def counts(self, code: CodeType) -> bool:
        """For the budget of lines: whether `code` is the policy's. Refuses code with a forbidden construct."""
        if not _is_policy_code(code.co_filename):
            return False
        found = _restriction(code, sys._getframe(2))
        if found and not self.refusal:
            self.refusal = found
        if self.refusal:
            raise _Refused
        self.place = f"{code.co_filename}:{code.co_firstlineno}"
        return True

    def decide(self, condition: z3.BoolRef) -> bool:
        site = _site(sys._getframe())
        if site is not None:
            self.sites.add(site)
            if site in self.forced:
                return self.forced[site]
        index = len(self.decisions)
        if index == DECISIONS:
            raise _TooLong
        if index < len(self._prefix):
            decision = self._prefix[index]
            differing = _first_difference(decision.before, (*self.conditions, condition))
            if differing is not None:
                self.refusal = self.refusal or f"{[*self.places, self.place][differing]}: {STATEFUL}"
                raise _Refused
        else:
            decision = self._decide_anew(condition)
        self.decisions.append(decision)
        self.learn(decision.literal)
        return decision.taken

    def _decide_anew(self, condition: z3.BoolRef) -> Decision:
        can_hold = self._check(condition) != z3.unsat
        can_fail = self._check(z3.Not(condition)) != z3.unsat
        if not can_hold:
            self.infeasible.append(all_of((*self.conditions, condition)))
        if not can_fail:
            self.infeasible.append(all_of((*self.conditions, z3.Not(condition))))
        if not can_hold and not can_fail:
            raise _Infeasible
        before = (*self.conditions, condition)
        return Decision(before, condition, taken=can_hold, other_way=can_hold and can_fail)

    def grant(self, law: z3.BoolRef) -> None:
        """Let the solver use a law that the obligations about this function assume by name."""
        self.solver.add(law)

    def learn(self, fact: z3.BoolRef) -> None:
        """Note what holds on this path from here on."""
        if fact.get_id() not in self._known:
            self._known.add(fact.get_id())
            self.conditions.append(fact)
            self.places.append(self.place)
            self.solver.add(fact)

    def _check(self, condition: z3.BoolRef) -> z3.CheckSatResult:
        self.solver.push()
        self.solver.add(condition)
        answer: z3.CheckSatResult = self.solver.check()
        self.solver.pop()
        return answer


@functools.lru_cache(maxsize=1024)
def _is_policy_code(filename: str) -> bool:
    """Whether a file may belong to a policy: not the engine, not generated code, not a library that it runs on."""
    if filename.startswith("<"):
        return False
    path = pathlib.Path(filename)
    if path.parent in _ENGINE or any(path.is_relative_to(library) for library in _LIBRARIES):
        return False
    return not path.is_relative_to(_STANDARD_LIBRARY) or "site-packages" in path.parts


_checked: dict[tuple[CodeType, str], str] = {}


def _restriction(code: CodeType, frame: FrameType | None) -> str:
    """Why `code`, which `frame` or one of its callers is about to run, is refused; empty if it is not."""
    key = (code, code.co_filename)  # equal code may stand in two files
    if key not in _checked:
        while frame is not None and frame.f_code is not code:
            frame = frame.f_back
        found = restriction_in(code, frame.f_globals if frame is not None else {})
        place = f"{code.co_filename}:{found.line}" if found else ""
        _checked[key] = f"{place}: {found.what} cannot be made symbolic; {found.advice}" if found else ""
    return _checked[key]


def _policy_frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        if _is_policy_code(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _place(frame: FrameType) -> str:
    found = next(_policy_frames(frame), None)
    return f"{found.f_code.co_filename}:{found.f_lineno}" if found is not None else "the policy"


def _site(frame: FrameType) -> Site | None:
    """The branch in the policy that asks; None if the engine's own code does."""
    found: FrameType | None = frame
    while found is not None and (found.f_code.co_filename in _ASKING or found.f_code.co_filename.startswith("<")):
        found = found.f_back
    if found is None or not _is_policy_code(found.f_code.co_filename):
        return None
    return _site_at(found.f_code, found.f_lasti)


_ASKING = (__file__, symbolic.__file__)


@functools.lru_cache(maxsize=1024)
def _site_at(code: CodeType, instruction: int) -> Site:
    line, _, column, _ = list(code.co_positions())[instruction // 2]
    return Site(code.co_filename, line or code.co_firstlineno, (column or 0) + 1)
