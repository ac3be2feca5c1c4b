"""What becomes of the output of an executed step.

Mirrors `Scheduler.update_from_output`, `_update_request_with_output` and `_drain_deferred_frees`
(vllm/v1/core/sched/scheduler.py) and `AsyncScheduler`.
"""

from __future__ import annotations

from collections.abc import Mapping

from model.allocation import publish
from model.in_flight import InFlight, after_rejection
from model.plan import Chunk
from model.request import Request, Status
from model.rules.states import AcceptedDrafts
from model.scheduler import Scheduler, finish
from model.values import evolve


def settle(scheduler: Scheduler, step: InFlight) -> tuple[Scheduler, dict[str, int]]:
    """The oldest step in flight has executed, as `step` has it: its chunks are in flight no more, and blocks that
    waited for it are free. Also returns the requests that get tokens from it, each with how many."""
    pool = scheduler.pool
    for blocks in step.freed:
        pool = pool.release(blocks)
    scheduler = evolve(scheduler, in_flight=scheduler.in_flight[1:], pool=pool)
    sampled: dict[str, int] = {}
    for chunk, work in step.chunks:
        if chunk.rejected and scheduler.in_flight:
            moved = after_rejection(scheduler.in_flight, chunk.request, chunk.rejected)
            scheduler = evolve(scheduler, in_flight=moved)
        request = scheduler.requests.get(chunk.request)
        if request is None:
            continue
        if work.samples and not (request.stale and request.drop_stale):
            sampled[chunk.request] = 1 + chunk.drafts - chunk.rejected
        scheduler = scheduler.with_request(_executed(request, chunk, max(chunk.rejected, work.padding)))
    return scheduler, sampled


def _executed(request: Request, chunk: Chunk, rejected: int) -> Request:
    """The request with one chunk less in flight, whose last `rejected` tokens do not count: a chunk from before a
    preemption did not count any more."""
    stale = max(0, request.stale - chunk.count)
    if request.stale:
        rejected = 0
    return evolve(
        request,
        computed=max(0, request.computed - rejected),
        placeholders=max(0, request.placeholders - rejected),
        in_flight=request.in_flight - chunk.count,
        stale=stale,
        drop_stale=request.drop_stale and stale > 0,
    )


def sample(scheduler: Scheduler, sampled: Mapping[str, int]) -> Scheduler:
    """Each of the requests gets its next tokens, accepted drafts and one more, or ends with its output."""
    for name, tokens in sampled.items():
        scheduler = _sampled(scheduler, scheduler.requests[name], tokens)
    return scheduler


def _sampled(scheduler: Scheduler, request: Request, tokens: int) -> Scheduler:
    """What was scheduled before the tokens were known is published now, also if they are the last ones. Drafts for the
    next step follow."""
    configuration = scheduler.configuration
    running = request.status is Status.RUNNING
    drafts = configuration.drafts if running else 0
    longer = evolve(
        request,
        tokens=request.tokens + request.unsampled[:tokens],
        unsampled=request.unsampled[tokens:],
        placeholders=max(0, request.placeholders - tokens),
        drafts=drafts if configuration.steps_in_flight == 1 else request.drafts,
    )
    pool = scheduler.pool
    accepts = configuration.drafts > 0 and configuration.release.accepted_drafts is AcceptedDrafts.AT_ONCE
    if running and (request.placeholders or accepts):
        pool, longer, _ = publish(configuration, pool, longer, longer.computed - longer.in_flight)
    scheduler = evolve(scheduler.with_request(longer), pool=pool)
    return scheduler if longer.unsampled else finish(scheduler, request.name)
