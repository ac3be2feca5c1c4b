"""Actions as commands of the driver."""

from __future__ import annotations

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
from model.system import Observation
from model.tokens import Token, tokens_of

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
    """Speaks to one subject about one run: it numbers the tokens."""

    token_ids: dict[Token, int] = attrs.Factory(dict)

    def command(self, action: Action) -> tuple[str, dict[str, Any]]:
        """The command for `action` and its arguments."""
        return NAMES[type(action)], self._arguments(action)

    def expected(self, observation: Observation) -> tuple[str, dict[str, Any]]:
        """The command for what the model made of an action: which blocks of its loads fail, and whether a step of a
        drain is only the execution of one that was in flight."""
        do, arguments = self.command(observation.action)
        if observation.plan is not None:
            if observation.planned is None:
                rejected = {key: value for key, value in arguments.items() if key == "rejected"}
                do, arguments = "execute", rejected
            groups = observation.before.configuration.groups
            failed = {block for load in observation.plan.loads for _, block in load.failed(groups)}
            if failed:
                arguments["failed_blocks"] = sorted(failed)
        return do, arguments

    def _arguments(self, action: Action) -> dict[str, Any]:
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
                    "skip_reading": action.skip_reading,
                    "priority": action.priority,
                }
            case Step(rejected=rejected) if rejected:
                return {"budget": action.budget, "rejected": {each.request: each.drafts for each in rejected}}
            case Step() | Drain() | Schedule():
                return {"budget": action.budget}
            case Evict():
                return {"group": action.group, "request": action.request, "boundary": action.boundary}
            case EndLoad():
                return {"request": action.request, "succeeded": action.succeeded}
            case Abort():
                return {"request": action.request}
            case Execute(rejected=rejected) if rejected:
                return {"rejected": {each.request: each.drafts for each in rejected}}
            case Preempt() | Reset() | Execute():
                return {}
            case EvictObject() | EndSaves():
                raise HitboundError(f"{action}: no leaf that keeps objects runs on a subject")

    def _ids(self, tokens: tuple[Token, ...]) -> list[int]:
        return [self.token_ids.setdefault(token, len(self.token_ids) + FIRST_TOKEN_ID) for token in tokens]
