"""The model and a real scheduler run the same trace; every decision is compared step by step.

Both start with the same free queue, so block ids agree exactly as long as every block is taken, freed and evicted in
the same order. The first difference ends the comparison.

Where nothing differs, the subject's plans, tables and labels are those of the model, and so is what the shadow worker
makes of them: what the properties find in the model's observations, they find in the subject's.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import attrs

from model.actions import Preempt, Reset
from model.adjustment import takes_nothing
from model.policy import Policy
from model.rules.scheduling import Reservation
from model.system import Observation, initial
from model.trace import Trace
from subjects.commands import Commands
from subjects.model_run import ModelRun, model_run
from subjects.observed import (
    SubjectState,
    asked_again,
    build_arguments,
    model_admissions,
    model_state,
    subject_admissions,
)
from subjects.process import Failure, Reply, SubjectProcess


class Ending(enum.Enum):
    """How the comparison of one trace ended."""

    EQUAL = "equal"
    DIFFERENT = "different"
    ESTIMATE = "estimate"
    """The subject puts a request off, or preempts, for want of blocks by its estimate, where the model takes blocks."""
    REFUSED = "refused"
    """The subject refuses the configuration; the difference says why."""


@attrs.frozen
class Difference:
    """The first value that is not the same on both sides, and where each side makes it. `action` is its index."""

    action: int
    name: str
    what: str
    model: object
    subject: object
    model_function: str
    subject_function: str

    def __str__(self) -> str:
        return (
            f"action {self.action + 1} ({self.name}): {self.what} differs\n"
            f"  model    {self.model}\n           {self.model_function}\n"
            f"  subject  {self.subject}\n           {self.subject_function}"
        )


@attrs.frozen
class Comparison:
    """The result of one trace, `steps` scheduling steps of which agreed. `failure` is what the subject did instead of
    answering, where an assertion of the engine's failed on both sides."""

    ending: Ending
    steps: int
    difference: Difference | None = None
    failure: Failure | None = None


FUNCTIONS = {
    "outcome": ("system.apply", "Scheduler.schedule"),
    "asked again": ("admission.decide", "MultiConnector.get_num_new_matched_tokens"),
    "put off": ("admission.admit", "MambaManager.get_num_blocks_to_allocate"),
    "admissions": ("admission.decide, policy", "Scheduler.schedule, _get_local_prefix_cache_hit"),
    "preempted": ("scheduler._Step._make_room", "Scheduler.schedule, _preempt_request"),
    "scheduled tokens": ("chunk.chunk_tokens", "Scheduler.schedule, _mamba_block_aligned_split"),
    "new blocks": ("allocation.adopt, extend", "KVCacheManager.allocate_slots"),
    "taken blocks": ("pool.take", "BlockPool.get_new_blocks"),
    "copies": ("partial_tails.copy_tail", "KVCacheManager.take_kv_cache_block_copies"),
    "running": ("scheduler", "Scheduler.running"),
    "waiting": ("scheduler", "Scheduler.waiting"),
    "skipped": ("scheduler", "Scheduler.skipped_waiting"),
    "requests": ("scheduler", "Scheduler.requests"),
    "tables": ("allocation.adopt, retire, extend", "SingleTypeKVCacheManager.req_to_blocks"),
    "labels": ("allocation.publish, pool.unpublish", "BlockPool.cache_full_blocks, evict_blocks"),
    "references": ("pool.take, touch, release", "BlockPool.touch, free_blocks"),
    "free": ("pool.take, touch, release", "FreeKVCacheBlockQueue"),
    "deferred": ("scheduler._free_blocks, step.finish", "Scheduler.deferred_frees"),
    "free count": ("pool.take, touch, release", "FreeKVCacheBlockQueue.num_free_blocks"),
}
"""What is compared -> the functions behind it, in `model/` and in vllm/v1/core/."""


class _Different(Exception):
    def __init__(self, what: str, model: object, subject: object) -> None:
        super().__init__(what)
        self.what, self.model, self.subject = what, model, subject


class _Estimate(Exception):
    """The subject has no room by its estimate where the model has."""


def compare(trace: Trace, policy: Policy, subject: SubjectProcess) -> Comparison:
    """Run `trace` on both sides until the first difference. Actions that are illegal in the model are left out."""
    run = model_run(trace, policy)
    return compared(run, start(run, subject))


def start(run: ModelRun, subject: SubjectProcess) -> Iterator[Reply]:
    """Let the subject run the trace, on a fresh scheduler; what it answers is to be `compared`."""
    commands = Commands()
    build = ("build", build_arguments(run.trace.configuration))
    return subject.run([build, *(commands.expected(observation) for _, observation in run.numbered)])


def compared(run: ModelRun, replies: Iterator[Reply]) -> Comparison:
    """Compare what the subject answers with what the model observed. All replies are taken."""
    comparing = _Comparing(run)
    index, observation = -1, None
    try:
        built = next(replies)
        if isinstance(built, Failure):
            found = _Different("outcome", "built", built)
            return Comparison(Ending.REFUSED, 0, _difference(index, observation, found))
        comparing.theirs.change(built, initial(run.trace.configuration))
        for index, observation in run.numbered:  # noqa: B007 (both are read where it ends)
            comparing.compare(observation, next(replies))
    except _Estimate:
        return Comparison(Ending.ESTIMATE, comparing.steps)
    except _Different as found:
        difference = _difference(index, observation, found)
        return Comparison(Ending.DIFFERENT, comparing.steps, difference)
    finally:
        for _ in replies:
            pass
    return Comparison(Ending.EQUAL, comparing.steps, failure=comparing.failure)


def _difference(index: int, observation: Observation | None, found: _Different) -> Difference:
    ours, theirs = FUNCTIONS.get(found.what, FUNCTIONS["outcome"])
    name = "build" if observation is None else str(observation.action)
    return Difference(index, name, found.what, found.model, found.subject, ours, theirs)


class _Comparing:
    """The comparison of one trace, observation by observation."""

    def __init__(self, run: ModelRun) -> None:
        configuration = run.trace.configuration
        self.theirs = SubjectState(configuration)
        self.estimates = configuration.release.reservation is not Reservation.BY_TAKING
        self.failure: Failure | None = None
        self.steps = 0
        self.preempted_before: set[str] = set()

    def compare(self, observation: Observation, reply: Reply) -> None:
        """Raises _Different or _Estimate."""
        assertion = observation.after.assertion
        if isinstance(reply, Failure):
            self._compare_failure(assertion, reply)
            return
        if assertion:
            raise _Different("outcome", f"assertion: {assertion}", "done")
        if observation.planned is not None:
            self._compare_step(observation, reply["step"])
            self.preempted_before.clear()
            self.steps += 1
        elif isinstance(observation.action, Preempt | Reset):
            before, after = observation.before.scheduler.running, observation.after.scheduler.running
            self.preempted_before |= set(before) - set(after)
        theirs = self.theirs.change(reply, observation.after)
        for what, ours in model_state(observation.after).items():
            if ours != theirs[what]:
                raise _Different(what, *_parts_that_differ(ours, theirs[what]))

    def _compare_failure(self, assertion: str, failure: Failure) -> None:
        too_few = failure.kind == "ValueError" and "free blocks from the pool" in failure.message
        if too_few and not self.estimates:
            raise _Estimate
        if not assertion or not (too_few or failure.kind in ("AssertionError", "ValueError")):
            raise _Different("outcome", assertion or "done", f"{failure.kind}: {failure.message}\n{failure.traceback}")
        self.failure = failure

    def _compare_step(self, observation: Observation, step: dict[str, Any]) -> None:
        plan = observation.planned
        assert plan is not None
        theirs = subject_admissions(observation, step)
        ours = model_admissions(observation)
        both = min(len(ours), len(theirs))
        put_off = [attempt["request"] for attempt in step["attempts"] if attempt["outcome"] == "put_off"]
        requests, configuration = observation.before.scheduler.requests, observation.before.configuration
        waiting_for_an_answer = [name for name in asked_again(step) if not takes_nothing(configuration, requests[name])]
        no_blocks: list[list[int]] = [[]] * len(observation.before.configuration.groups)
        comparisons: tuple[tuple[str, object, object], ...] = (
            ("preempted", sorted(observation.preempted), sorted(set(step["preempted"]) - self.preempted_before)),
            ("admissions", ours[:both], theirs[:both]),
            (
                "scheduled tokens",
                [[chunk.request, chunk.count] for chunk in plan.chunks],
                step["scheduled"],
            ),
            (
                "scheduled tokens",
                [(chunk.request, chunk.computed, chunk.starts) for chunk in plan.chunks],
                [(name, step["computed"][name], name in step["starts"]) for name, _ in step["scheduled"]],
            ),
            ("admissions", ours, theirs),
            ("put off", list(observation.put_off), put_off),
            ("asked again", list(observation.asked_again), waiting_for_an_answer),
            (
                "new blocks",
                {chunk.request: [list(table) for table in chunk.new_blocks] for chunk in plan.chunks},
                {name: tables or no_blocks for name, tables in step["new_blocks"].items()},
            ),
            ("copies", [[copy.source, copy.destination] for copy in plan.copies], step["copies"]),
            ("taken blocks", list(plan.taken), step["taken"]),
        )
        for what, model, subject in comparisons:
            if model != subject:
                if self._by_estimate(what, observation, step):
                    raise _Estimate
                raise _Different(what, model, subject)

    def _by_estimate(self, what: str, observation: Observation, step: dict[str, Any]) -> bool:
        """Whether the subject had no room for a request that the model admitted, resumed or ran in this step."""
        assert observation.planned is not None
        if self.estimates:
            return False
        started = {chunk.request for chunk in observation.planned.chunks}
        started |= {admission.decision.request for admission in observation.admissions}
        return any(
            attempt["outcome"] == "no_room"
            and attempt["request"] in started
            and attempt["waiting"] == (what != "preempted")
            for attempt in step["attempts"]
        )


def _parts_that_differ(ours: Any, theirs: Any) -> tuple[object, object]:
    """Of two mappings only the keys that differ; anything else whole."""
    if not isinstance(ours, dict):
        return ours, theirs
    keys = [key for key in (*ours, *theirs) if ours.get(key) != theirs.get(key)]
    return {key: ours.get(key) for key in keys}, {key: theirs.get(key) for key in keys}
