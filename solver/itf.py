"""A trace in the Informal Trace Format (ITF) of Apalache and Quint: what the state is after each action, as JSON."""

from __future__ import annotations

import json
from typing import Any

from model.policy import Policy
from model.pool import NULL_BLOCK
from model.system import System, apply, initial
from model.trace import Trace
from properties import wording
from properties.policy_guard import PolicyRaised
from properties.trace_document import trace_to_document

VARIABLES = ("action", "requests", "running", "waiting", "skipped", "free", "blocks")


def itf(trace: Trace, policy: Policy) -> str:
    """The text of the ITF document of `trace` under `policy`: one state before the first action, one after each."""
    document = trace_to_document(trace)
    system = initial(trace.configuration)
    states = [_state(0, {"do": "init"}, system)]
    for number, (action, told) in enumerate(zip(trace.actions, document["actions"], strict=True), 1):
        try:
            system, _ = apply(system, policy, action)
        except PolicyRaised:
            break
        states.append(_state(number, told, system))
    content = {
        "#meta": {
            "format": "ITF",
            "format-description": "https://apalache-mc.org/docs/adr/015adr-trace.html",
            "source": f"hitbound, policy {policy.name}",
            "description": trace.title,
        },
        "params": [],
        "vars": list(VARIABLES),
        "states": states,
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _state(number: int, action: dict[str, Any], system: System) -> dict[str, Any]:
    scheduler, memory = system.scheduler, system.worker.memory
    return {
        "#meta": {"index": number},
        "action": json.dumps(action, ensure_ascii=False),
        "requests": {
            "#map": [
                [
                    name,
                    {
                        "status": request.status.value,
                        "computed": request.computed,
                        "known": len(request.tokens),
                        "tables": [list(table) for table in request.tables],
                    },
                ]
                for name, request in sorted(scheduler.requests.items())
            ]
        },
        "running": list(scheduler.running),
        "waiting": list(scheduler.waiting),
        "skipped": list(scheduler.skipped),
        "free": list(scheduler.pool.free),
        "blocks": {
            "#map": [
                [
                    block,
                    {
                        "references": scheduler.pool.refs[block],
                        "cached_for": _cached_for(system, block),
                        "holds": wording.content(memory.read(block), ()),
                    },
                ]
                for block in range(NULL_BLOCK + 1, len(scheduler.pool.refs))
            ]
        },
    }


def _cached_for(system: System, block: int) -> str:
    label = system.scheduler.pool.labels[block]
    if label is None:
        return ""
    group = wording.group_name(system.configuration, label.group)
    return f"{group}: {' '.join(label.prefix)}"
