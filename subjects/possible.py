"""Whether an action is possible in the state that a subject shows: beyond a difference the model cannot say."""

from __future__ import annotations

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
from model.pool import Label
from model.request import Status
from model.system import System

_LOADS = (Status.LOADING, Status.ABORTED_LOADING)


def possible(system: System, action: Action) -> bool:
    """Mirrors what `model.system.apply` refuses."""
    requests, pool = system.scheduler.requests, system.scheduler.pool
    match action:
        case Arrive():
            return action.request not in system.texts
        case Evict():
            prefix = system.texts.get(action.request, ())[: action.boundary]
            block = pool.find(Label(action.group, prefix)) if len(prefix) == action.boundary else None
            return block is not None and not pool.refs[block]
        case EndLoad():
            return action.request in requests and requests[action.request].status in _LOADS
        case Abort():
            return action.request in requests and requests[action.request].status is not Status.ABORTED_LOADING
        case Preempt():
            return bool(system.scheduler.running)
        case Reset():
            holding = (*_LOADS, Status.LOADED, Status.LOAD_FAILED)
            return not any(request.status in holding for request in requests.values())
        case Schedule():
            return len(system.scheduler.in_flight) < system.configuration.steps_in_flight > 1
        case Execute():
            return bool(system.scheduler.in_flight)
        case Step():
            return not system.scheduler.in_flight
        case Drain():
            return True
        case EvictObject() | EndSaves():
            return False
