"""What becomes of the output of an executed step.

Mirrors `Scheduler.update_from_output`, `_update_request_with_output` and `_drain_deferred_frees`
(vllm/v1/core/sched/scheduler.py) and `AsyncScheduler`.
"""

from __future__ import annotations

from collections.abc import Iterable

from model.allocation import publish
from model.plan import Chunk
from model.request import Request, Status
from model.scheduler import Scheduler, finish
from model.values import evolve


def settle(scheduler: Scheduler) -> tuple[Scheduler, tuple[str, ...]]:
    """The oldest step in flight has executed: its chunks are in flight no more, and blocks that waited for it are free.
    Also returns the requests that get a token from it."""
    step, *younger = scheduler.in_flight
    scheduler = evolve(scheduler, in_flight=tuple(younger), pool=scheduler.pool.release(step.freed))
    sampled: list[str] = []
    for chunk, work in step.chunks:
        request = scheduler.requests.get(chunk.request)
        if request is None:
            continue
        if work.samples and not (request.stale and request.drop_stale):
            sampled.append(chunk.request)
        scheduler = scheduler.with_request(_executed(request, chunk))
    return scheduler, tuple(sampled)


def _executed(request: Request, chunk: Chunk) -> Request:
    """The request with one chunk less in flight."""
    stale = max(0, request.stale - chunk.count)
    return evolve(
        request, in_flight=request.in_flight - chunk.count, stale=stale, drop_stale=request.drop_stale and stale > 0
    )


def sample(scheduler: Scheduler, names: Iterable[str]) -> Scheduler:
    """Each of the requests gets its next token, or ends with its output."""
    for name in names:
        scheduler = _sampled(scheduler, scheduler.requests[name])
    return scheduler


def _sampled(scheduler: Scheduler, request: Request) -> Scheduler:
    """What was scheduled before the token was known is published now, also if it is the last one."""
    longer = evolve(
        request,
        tokens=request.tokens + request.unsampled[:1],
        unsampled=request.unsampled[1:],
        placeholders=max(0, request.placeholders - 1),
    )
    pool = scheduler.pool
    if request.placeholders and request.status is Status.RUNNING:
        pool, longer, _ = publish(scheduler.configuration, pool, longer, longer.computed - longer.in_flight)
    scheduler = evolve(scheduler.with_request(longer), pool=pool)
    return scheduler if longer.unsampled else finish(scheduler, request.name)
