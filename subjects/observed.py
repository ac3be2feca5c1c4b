"""What the model and a subject show after an action, in the same words, so that they can be compared."""

from __future__ import annotations

from typing import Any

from model.configuration import Configuration
from model.connector import Connector, Leaf
from model.errors import UnsupportedConfiguration
from model.request import Request, Status
from model.system import Observation, System

STATUS = {
    Status.WAITING: ("WAITING", "PREEMPTED"),
    Status.RUNNING: ("RUNNING",),
    Status.LOADING: ("WAITING_FOR_REMOTE_KVS",),
    Status.LOADED: ("LOADED",),
    Status.LOAD_FAILED: ("LOAD_FAILED",),
    Status.ABORTED_LOADING: ("FINISHED_ABORTED",),
}


def build_arguments(configuration: Configuration) -> dict[str, Any]:
    """The configuration as the driver takes it."""
    return {
        "groups": [
            {
                "kind": group.kind.value,
                "block": group.block,
                "window": group.window,
                "chunk": group.chunk,
                "draft": group.draft,
                "ranks": group.ranks,
                "checkpoint": configuration.checkpoint_alignment,
                "mode": configuration.state_mode.value,
            }
            for group in configuration.groups
        ],
        "pool_blocks": configuration.pool_blocks,
        "hash_block": configuration.hash_block,
        "budget": configuration.budget,
        "steps_in_flight": configuration.steps_in_flight,
        "load_failure": configuration.load_failure.value,
        "retention": configuration.retention,
        "connector": None if configuration.connector is None else _connector_argument(configuration.connector),
    }


def _connector_argument(connector: Connector) -> dict[str, Any]:
    if isinstance(connector, Leaf):
        if connector.store is not None or connector.peer is not None:
            raise UnsupportedConfiguration(
                f"leaf {connector.name!r} is a store or a peer, and the driver's leaves answer as scripted: compare "
                "without it"
            )
        return {"name": connector.name, "claims": connector.claims, "within_range": connector.conduct.within_range}
    return {"children": [_connector_argument(child) for child in connector.children]}


def model_admissions(observation: Observation) -> list[dict[str, Any]]:
    """What the model decided for each request that it admitted in the step."""
    return [
        {
            "request": admission.decision.request,
            "asked": admission.decision.asked if observation.before.configuration.connector else None,
            "local": admission.decision.local,
            "external": admission.decision.external,
            "asynchronous": admission.chunk == 0,
            "diverged": admission.decision.diverged,
        }
        for admission in observation.admissions
    ]


def subject_admissions(observation: Observation, step: dict[str, Any]) -> list[dict[str, Any]]:
    """The same of the subject; requests that were loaded before and are now run are not looked up again."""
    asked = {request: at for request, at, tokens, _ in step["asked"] if tokens is not None}
    before = observation.before.scheduler.requests
    return [
        {
            "request": attempt["request"],
            "asked": asked.get(attempt["request"]),
            **{key: attempt[key] for key in ("local", "external", "asynchronous", "diverged")},
        }
        for attempt in step["attempts"]
        if attempt["waiting"]
        and attempt["outcome"] == "allocated"
        and (attempt["request"] in asked or not before[attempt["request"]].computed)
    ]


def model_state(system: System) -> dict[str, Any]:
    """The model's state in the words of the comparison."""
    scheduler = system.scheduler
    pool = scheduler.pool
    return {
        "requests": {name: _model_request(request) for name, request in scheduler.requests.items()},
        "tables": {name: [list(table) for table in request.tables] for name, request in scheduler.requests.items()},
        "running": list(scheduler.running),
        "waiting": list(scheduler.waiting),
        "skipped": list(scheduler.skipped),
        "labels": {(label.group, label.prefix): list(blocks) for label, blocks in pool.cached.items()},
        "references": list(pool.refs[1:]),
        "free queue": list(pool.free),
        "free count": len(pool.free),
    }


def _model_request(request: Request) -> tuple[str, int, int | None]:
    computed = None if request.status in (Status.LOAD_FAILED, Status.ABORTED_LOADING) else request.computed
    return request.status.value, len(request.tokens), computed


def subject_state(what: str, reply: dict[str, Any], system: System) -> Any:
    """One part of the subject's state; `system` knows the texts that its labels name."""
    match what:
        case "requests":
            return {name: _subject_request(request) for name, request in reply["requests"].items()}
        case "tables":
            return {
                name: [list(table) for table in request["tables"]] if any(request["tables"]) else []
                for name, request in reply["requests"].items()
            }
        case "labels":
            # An attention block that is wider than the hash unit also has an entry for the prompt's last hash unit;
            # without fine-grained hits no lookup probes it.
            groups = system.configuration.groups
            return {
                (group, system.texts[request][:boundary]): blocks
                for group, request, boundary, blocks in reply["labels"]
                if boundary % groups[group].block == 0 or system.configuration.fine_grained
            }
        case "references":
            return reply["references"][1:]
        case "free queue":
            return reply["free"]
    return reply[what]


def _subject_request(request: dict[str, Any]) -> tuple[str, int, int | None]:
    status = next((ours for ours, theirs in STATUS.items() if request["status"] in theirs), None)
    computed = None if status in (Status.LOAD_FAILED, Status.ABORTED_LOADING) else request["computed"]
    return (request["status"] if status is None else status.value), request["tokens"], computed


def up_to_renaming(state: dict[str, Any]) -> dict[str, Any]:
    """A state with its blocks renumbered, and without what depends on their order."""
    number = _canonical(state["tables"], state["labels"])
    tables = {
        name: [[number[block] for block in table] for table in tables] for name, tables in state["tables"].items()
    }
    labels = {label: [number[block] for block in blocks] for label, blocks in state["labels"].items()}
    order = ("references", "free queue")
    return {**{what: value for what, value in state.items() if what not in order}, "tables": tables, "labels": labels}


def _canonical(tables: dict[str, list[list[int]]], labels: dict[Any, list[int]]) -> dict[int, int]:
    """Blocks numbered in the order in which tables and labels name them."""
    named = [block for request in sorted(tables) for table in tables[request] for block in table if block]
    named += [block for label in sorted(labels) for block in labels[label]]
    return {block: number for number, block in enumerate(dict.fromkeys(named), 1)} | {0: 0}
