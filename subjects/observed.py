"""What the model and a subject show after an action, in the same words, so that they can be compared."""

from __future__ import annotations

from typing import Any

import attrs

from model.configuration import Configuration
from model.connector import Connector, Leaf
from model.errors import UnsupportedConfiguration
from model.plan import Table
from model.pool import NULL_BLOCK, Label
from model.request import Request, Status
from model.scheduler import Scheduler
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
                "scratch": configuration.drafts,
            }
            for group in configuration.groups
        ],
        "pool_blocks": configuration.pool_blocks,
        "hash_block": configuration.hash_block,
        "budget": configuration.budget,
        "steps_in_flight": configuration.steps_in_flight,
        "load_failure": configuration.load_failure.value,
        "retention": configuration.retention,
        "drafts": configuration.drafts,
        "replay_window": configuration.replay_window,
        "auxiliary_outputs": configuration.auxiliary_outputs,
        "scheduling": configuration.scheduling.value,
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


def is_known(configuration: Configuration, group: int, boundary: int) -> bool:
    """Whether a label of the subject counts. An attention block that is wider than the hash unit also has an entry for
    the prompt's last hash unit; without fine-grained hits no lookup probes it."""
    return configuration.fine_grained or boundary % configuration.groups[group].block == 0


# What was admitted


def model_admissions(observation: Observation) -> list[dict[str, Any]]:
    """What the model decided for each request that it admitted in the step, and what it told which leaf to load where.
    How far a group's own hit reaches a subject does not show, only its columns, which may be null."""
    return [
        {
            "request": admission.decision.request,
            "asked": admission.decision.asked if observation.before.configuration.connector else None,
            "local": admission.decision.local,
            "external": admission.decision.external,
            "asynchronous": admission.chunk == 0,
            "diverged": admission.decision.diverged,
            "loads": [
                {
                    "leaf": load.leaf.name,
                    "tokens": load.end - load.start,
                    "tables": load.tables,
                }
                for load in admission.loads
            ],
        }
        for admission in observation.admissions
    ]


def subject_admissions(observation: Observation, step: dict[str, Any]) -> list[dict[str, Any]]:
    """The same of the subject; requests that were loaded before and are now run are not looked up again."""
    asked = {request: at for request, at, _, _ in step["asked"]}
    before = observation.before.scheduler.requests
    return [
        {
            "request": attempt["request"],
            "asked": asked.get(attempt["request"]),
            **{key: attempt[key] for key in ("local", "external", "asynchronous", "diverged")},
            "loads": [
                {
                    "leaf": leaf,
                    "tokens": tokens,
                    "tables": as_tables(attempt["tables"]),
                }
                for leaf, request, tokens in step["told"]
                if request == attempt["request"] and tokens
            ],
        }
        for attempt in step["attempts"]
        if attempt["waiting"]
        and attempt["outcome"] == "allocated"
        and (attempt["request"] in asked or not before[attempt["request"]].computed)
    ]


def asked_again(step: dict[str, Any]) -> list[str]:
    """Requests that wait for an answer. One that reads nothing is tried without."""
    tried = {attempt["request"] for attempt in step["attempts"]}
    return [request for request, _, tokens, _ in step["asked"] if tokens is None and request not in tried]


def own_hits(configuration: Configuration, attempt: dict[str, Any]) -> tuple[int, ...]:
    """Up to which boundary, L at most, each group has columns of an admission."""
    hits = zip(attempt["hits"], configuration.groups, strict=True)
    return tuple(min(len(table) * group.block, attempt["local"]) for table, group in hits)


def as_tables(tables: Any) -> tuple[Table, ...]:
    """A request's tables; none where it has no block."""
    return tuple(tuple(table) for table in tables) if any(tables) else ()


# The state afterwards


def model_state(system: System) -> dict[str, Any]:
    """The model's state in the words of the comparison."""
    scheduler = system.scheduler
    pool = scheduler.pool
    return {
        "requests": {name: _model_request(request) for name, request in scheduler.requests.items()},
        "tables": {name: request.tables for name, request in scheduler.requests.items()},
        "running": scheduler.running,
        "waiting": scheduler.waiting,
        "skipped": scheduler.skipped,
        "labels": pool.cached,
        "references": pool.refs,
        "free": pool.free,
        "free count": len(pool.free),
        "deferred": deferred(scheduler),
    }


def deferred(scheduler: Scheduler) -> tuple[int, ...]:
    """Blocks that are free once steps in flight have executed, by number."""
    waiting = (*scheduler.copied, *(blocks for step in scheduler.in_flight for blocks in step.freed))
    return tuple(sorted(block for blocks in waiting for block in blocks if block != NULL_BLOCK))


def _model_request(request: Request) -> tuple[str, int, int | None]:
    computed = None if request.status in (Status.LOAD_FAILED, Status.ABORTED_LOADING) else request.computed
    return request.status.value, len(request.tokens), computed


@attrs.define
class SubjectState:
    """A subject's state in the same words, put together from the changes that the driver tells (see `changes` there).

    The order of the labels of a block is not shown."""

    configuration: Configuration
    state: dict[str, Any] = attrs.Factory(lambda: {"requests": {}, "tables": {}, "labels": {}})
    known: dict[tuple[int, str, int], Label] = attrs.Factory(dict)

    def change(self, changes: dict[str, Any], system: System) -> dict[str, Any]:
        """The state after `changes`; `system` knows the texts that its labels name."""
        requests, tables, labels = (self.state[what] for what in ("requests", "tables", "labels"))
        for what, value in changes.items():
            match what:
                case "requests":
                    for name, request in value.items():
                        if request is None:
                            del requests[name], tables[name]
                        else:
                            requests[name], tables[name] = _subject_request(request), as_tables(request["tables"])
                case "labels":
                    for group, name, boundary, blocks in value:
                        if not is_known(self.configuration, group, boundary):
                            continue
                        label = self._label(group, name, boundary, system)
                        if blocks:
                            labels[label] = tuple(blocks)
                        else:
                            del labels[label]
                case "references":
                    # vLLM keeps a reference on the null block, which means nothing: it is never taken.
                    self.state[what] = (0, *value[1:])
                case "free count":
                    self.state[what] = value
                case "running" | "waiting" | "skipped" | "free" | "deferred":
                    self.state[what] = tuple(value)
        return self.state

    def _label(self, group: int, name: str, boundary: int, system: System) -> Label:
        key = (group, name, boundary)
        if key not in self.known:
            self.known[key] = Label(group, system.texts[name][:boundary])
        return self.known[key]


def _subject_request(request: dict[str, Any]) -> tuple[str, int, int | None]:
    status = next((ours for ours, theirs in STATUS.items() if request["status"] in theirs), None)
    computed = None if status in (Status.LOAD_FAILED, Status.ABORTED_LOADING) else request["computed"]
    return (request["status"] if status is None else status.value), request["tokens"], computed
