"""A guarded policy whose answers are remembered: its parts are pure, and the guard around each call costs more than
they do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from model.policy import Policy
from properties.policy_guard import guarded

_BY_VALUE = ("cap", "claim_step", "claim_end", "choose_step", "assign", "lookup", "local", "ask", "usable", "settle")
"""Parts whose arguments are plain values; `accept` is given a view of the whole pool."""


def remembered(policy: Policy) -> Policy:
    """The same policy, guarded, each part called once for each of its arguments. What it raises is raised each time."""
    return cast(Policy, _Remembered(guarded(policy)))


class _Remembered:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def __getattr__(self, part: str) -> Any:
        value = getattr(self._policy, part)
        if part in _BY_VALUE:
            value = _remembering(value)
        setattr(self, part, value)
        return value


def _remembering(function: Callable[..., Any]) -> Callable[..., Any]:
    answers: dict[tuple[Any, ...], Any] = {}

    def answer(*arguments: Any) -> Any:
        if arguments not in answers:
            answers[arguments] = function(*arguments)
        return answers[arguments]

    return answer
