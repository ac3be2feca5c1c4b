"""Calls the parts of a policy so that a faulty one cannot harm the engine that runs it.

A part that is missing or returns a value of the wrong type raises PolicyError, one that raises is reported as
PolicyRaised (POLICY-TOTAL), one that does not end is stopped by a budget of executed lines and reported as PolicyLoops.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import Any, cast

from model.errors import PolicyError
from model.policy import Answer, Lookup, Policy

LINES = 20_000
"""Lines of Python that one call of a part may execute; the shipped policies need fewer than ten."""

RESULTS: dict[str, tuple[str, ...]] = {
    "cap": ("tokens",),
    "accept": ("tokens",),
    "claim_step": ("accumulator",),
    "claim_end": ("truth",),
    "choose_step": ("answer",),
    "assign": ("tokens",),
    "lookup": ("lookup",),
    "local": ("tokens", "truth"),
    "ask": ("tokens",),
    "usable": ("tokens",),
    "settle": ("tokens", "tokens"),
    "claims": ("truth",),
    "choose": ("answer",),
}
"""Part -> what it returns, the last two of a list-shaped policy; more than one is a tuple."""

DESCRIPTIONS = {
    "tokens": "a number of tokens (int)",
    "truth": "True or False (bool)",
    "lookup": "COMMON or PER_GROUP (model.policy.Lookup)",
    "answer": "a model.policy.Answer",
    "accumulator": "a hashable value",
}


class PolicyRaised(Exception):
    """A part of the policy raised `error` at `place` (file:line)."""

    def __init__(self, part: str, error: Exception | SystemExit, place: str) -> None:
        super().__init__(f"`{part}` raised {type(error).__name__}: {error} at {place}")
        self.part = part
        self.error = error
        self.place = place


class PolicyLoops(Exception):
    """A part of the policy did not end within its budget of lines."""

    def __init__(self, part: str, place: str) -> None:
        super().__init__(f"`{part}` did not end within {LINES} lines at {place}")
        self.part = part
        self.place = place


class _LinesUsedUp(BaseException):
    """Not an Exception, so that a policy that catches those cannot go on."""


class LineBudget:
    """Within this context Python code executes at most LINES lines; then _LinesUsedUp is raised in it.

    Only code for which `counts` is true is counted. The tracer that was set before is set again at the end.
    """

    def __init__(self, counts: Callable[[CodeType], bool] = lambda code: True) -> None:
        self._counts = counts
        self._left = LINES
        self.place = ""

    def __enter__(self) -> LineBudget:
        self._previous = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        sys.settrace(self._previous)

    @property
    def used_up(self) -> bool:
        return self._left < 0

    def _call(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        return self._line if self._counts(frame.f_code) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if event == "line":
            self._left -= 1
            if self._left < 0:
                self.place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise _LinesUsedUp
        return self._line


def part_of(policy: Policy, part: str) -> Any:
    """The attribute `part` of the policy; raises PolicyError if there is none."""
    try:
        return getattr(policy, part)
    except AttributeError:
        kind = type(policy)
        raise PolicyError(
            f"the policy {kind.__module__}.{kind.__qualname__} lacks `{part}`; "
            "add it, or derive from model.policies.vllm.Vllm028 to change only what differs"
        ) from None


def place_of(function: Any) -> str:
    """File and line where a function is defined; its repr if it was not written in Python."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if isinstance(code, CodeType) else repr(function)


def call(
    policy: Policy,
    part: str,
    arguments: tuple[Any, ...],
    *,
    tokens: tuple[type, ...] = (int,),
    truths: tuple[type, ...] = (bool,),
    counts: Callable[[CodeType], bool] = lambda code: True,
) -> Any:
    """What `part` returns for `arguments`. Raises PolicyError, PolicyRaised or PolicyLoops.

    `tokens` and `truths` are the types that pass for numbers of tokens and for truth values; `counts` says which code
    is subject to the budget of lines.
    """
    function = part_of(policy, part)
    budget = LineBudget(counts)
    try:
        with budget:
            result = function(*arguments)
    except (_LinesUsedUp, RecursionError):
        raise PolicyLoops(part, budget.place or place_of(function)) from None
    except (Exception, SystemExit) as error:
        raise PolicyRaised(part, error, _place_raised(error, function)) from error
    if budget.used_up:
        raise PolicyLoops(part, budget.place)
    _check_result(part, result, place_of(function), tokens, truths)
    return result


def guarded(policy: Policy) -> Policy:
    """The same policy, each part called through `call`."""
    return cast(Policy, _Guarded(policy))


class _Guarded:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def __getattr__(self, part: str) -> Any:
        value = getattr(self._policy, part)
        if part not in RESULTS:
            return value
        wrapped = functools.partial(_call_with_ints, self._policy, part)
        setattr(self, part, wrapped)
        return wrapped


def _call_with_ints(policy: Policy, part: str, *arguments: Any) -> Any:
    return call(policy, part, arguments)


def _check_result(part: str, result: Any, place: str, tokens: tuple[type, ...], truths: tuple[type, ...]) -> None:
    expected = RESULTS[part]

    def named(value: Any) -> str:
        if type(value) in tokens:
            return "a single number of tokens"
        return "a single truth value" if type(value) in truths else f"{value!r} ({type(value).__name__})"

    values = (result,)
    if len(expected) > 1:
        if type(result) is not tuple or len(result) != len(expected):
            wanted = " and ".join(DESCRIPTIONS[kind] for kind in expected)
            raise PolicyError(f"{place}: `{part}` returned {named(result)}; return a tuple of {wanted}")
        values = result
    for kind, value in zip(expected, values, strict=True):
        if not _is(kind, value, tokens, truths):
            raise PolicyError(f"{place}: `{part}` returned {named(value)}; return {DESCRIPTIONS[kind]}")
    if expected == ("answer",):
        for field in ("unknown", "asynchronous", "tokens", "source"):
            value = getattr(result, field)
            kind = "truth" if field in ("unknown", "asynchronous") else "tokens"
            if not _is(kind, value, tokens, truths):
                raise PolicyError(
                    f"{place}: `{part}` returned an Answer whose `{field}` is {named(value)}; use {DESCRIPTIONS[kind]}"
                )


def _is(kind: str, value: Any, tokens: tuple[type, ...], truths: tuple[type, ...]) -> bool:
    match kind:
        case "tokens":
            return type(value) in tokens
        case "truth":
            return type(value) in truths
        case "lookup":
            return type(value) is Lookup
        case "answer":
            return type(value) is Answer
        case _:
            return getattr(type(value), "__hash__", None) is not None


def _place_raised(error: Exception | SystemExit, function: Any) -> str:
    """Where the policy's own code was when the error was raised: the last frame in the file that defines the part."""
    code = getattr(function, "__code__", None)
    traceback, place = error.__traceback__, place_of(function)
    while traceback is not None:
        if isinstance(code, CodeType) and traceback.tb_frame.f_code.co_filename == code.co_filename:
            place = f"{code.co_filename}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place
