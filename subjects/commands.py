"""Actions as commands of the driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from model.actions import (
    Abort,
    Action,
    Arrive,
    Drain,
    EndLoad,
    EndSaves,
    Evict,
    EvictObject,
    Execute,
    Preempt,
    Reset,
    Schedule,
    Step,
)
from model.errors import HitboundError
from model.tokens import Prefix, Token, tokens_of

NAMES: dict[type[Action], str] = {
    Arrive: "arrive",
    Step: "step",
    Drain: "step",
    Schedule: "schedule",
    Execute: "execute",
    Evict: "evict",
    EndLoad: "end_load",
    Abort: "abort",
    Preempt: "preempt",
    Reset: "reset",
}
"""A drain is given to the subject step by step."""

FIRST_TOKEN_ID = 3
"""Lower ids are taken by the model that the driver configures."""


@attrs.define
class Commands:
    """Speaks to one subject about one run: it numbers the tokens, and names prefixes as the subject knows them.

    `labels` are those that the subject last reported: group, request, boundary in tokens, blocks.
    """

    token_ids: dict[Token, int] = attrs.Factory(dict)
    labels: list[tuple[int, str, int, list[int]]] = attrs.Factory(list)

    def command(self, action: Action, texts: Mapping[str, Prefix]) -> tuple[str, dict[str, Any]]:
        """The command for `action` and its arguments; `texts` are the tokens of all requests that have arrived."""
        arguments = self._arguments(action, texts)
        return NAMES[type(action)], arguments

    def _arguments(self, action: Action, texts: Mapping[str, Prefix]) -> dict[str, Any]:
        match action:
            case Arrive():
                return {
                    "request": action.request,
                    "prompt": self._ids(tokens_of(action.prompt)),
                    "output": self._ids(tokens_of(action.output)),
                    "answers": {
                        said.leaf: [[answer.tokens, answer.asynchronous] for answer in said.answers]
                        for said in action.answers
                    },
                }
            case Step(rejected=rejected) if rejected:
                return {"budget": action.budget, "rejected": {each.request: each.drafts for each in rejected}}
            case Step() | Drain() | Schedule():
                return {"budget": action.budget}
            case Evict():
                return {
                    "group": action.group,
                    "request": self._first_owner(action, texts),
                    "boundary": action.boundary,
                }
            case EndLoad():
                return {"request": action.request, "succeeded": action.succeeded}
            case Abort():
                return {"request": action.request}
            case Preempt() | Reset() | Execute():
                return {}
            case EvictObject() | EndSaves():
                raise HitboundError(f"{action}: no leaf that keeps objects runs on a subject")

    def _first_owner(self, action: Evict, texts: Mapping[str, Prefix]) -> str:
        """The request by which the subject names the tokens that `action` spells by another."""
        prefix = texts[action.request][: action.boundary]
        for group, request, boundary, _ in self.labels:
            if group == action.group and texts[request][:boundary] == prefix:
                return request
        return action.request

    def _ids(self, tokens: tuple[Token, ...]) -> list[int]:
        return [self.token_ids.setdefault(token, len(self.token_ids) + FIRST_TOKEN_ID) for token in tokens]
