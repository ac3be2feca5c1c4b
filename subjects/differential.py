"""The model and a real scheduler run the same trace; every decision is compared step by step.

Both start with the same free queue, so block ids agree exactly as long as every block is taken, freed and evicted in
the same order. The first difference ends the comparison.
"""

from __future__ import annotations

import enum
from typing import Any

import attrs

from model.actions import Action, Preempt, Reset
from model.configuration import Configuration
from model.errors import IllegalAction
from model.policy import Policy
from model.release import Reservation
from model.system import Observation, apply, initial
from model.trace import Trace
from properties.events import speculation
from subjects.engine import SubjectEngine
from subjects.observed import (
    model_admissions,
    model_state,
    subject_admissions,
    subject_state,
    up_to_renaming,
)
from subjects.process import Failure, SubjectProcess


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
    """The first value that is not the same on both sides, and where each side makes it."""

    step: int
    action: str
    what: str
    model: object
    subject: object
    model_function: str
    subject_function: str

    def __str__(self) -> str:
        return (
            f"action {self.step} ({self.action}): {self.what} differs\n"
            f"  model    {self.model}\n           {self.model_function}\n"
            f"  subject  {self.subject}\n           {self.subject_function}"
        )


@attrs.frozen
class Comparison:
    """The result of one trace; `steps` scheduling steps agreed."""

    ending: Ending
    steps: int
    difference: Difference | None = None


FUNCTIONS = {
    "outcome": ("system.apply", "Scheduler.schedule"),
    "asked again": ("admission.decide", "MultiConnector.get_num_new_matched_tokens"),
    "put off": ("admission.admit", "MambaManager.get_num_blocks_to_allocate"),
    "admissions": ("admission.decide, policy", "Scheduler.schedule, _get_local_prefix_cache_hit"),
    "preempted": ("step.Step._make_room", "Scheduler.schedule, _preempt_request"),
    "scheduled tokens": ("chunk.chunk_tokens", "Scheduler.schedule, _mamba_block_aligned_split"),
    "new blocks": ("allocation.adopt, extend", "KVCacheManager.allocate_slots"),
    "copies": ("partial_tails.copy_tail", "KVCacheManager.take_kv_cache_block_copies"),
    "running": ("scheduler", "Scheduler.running"),
    "waiting": ("scheduler", "Scheduler.waiting"),
    "skipped": ("scheduler", "Scheduler.skipped_waiting"),
    "requests": ("scheduler", "Scheduler.requests"),
    "tables": ("allocation.adopt, retire, extend", "SingleTypeKVCacheManager.req_to_blocks"),
    "labels": ("allocation.publish, pool.unpublish", "BlockPool.cache_full_blocks, evict_blocks"),
    "references": ("pool.take, touch, release", "BlockPool.touch, free_blocks"),
    "free queue": ("pool.take, touch, release", "FreeKVCacheBlockQueue"),
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
    return Run(trace.configuration, policy, subject).run(trace.actions)


class Run:
    """One trace on both sides.

    Without `exact_blocks` block ids are compared up to renaming, and the order of the free queue not at all: for
    releases that free in another order, on traces without eviction.
    """

    def __init__(
        self, configuration: Configuration, policy: Policy, subject: SubjectProcess, *, exact_blocks: bool = True
    ) -> None:
        self.policy = policy
        self.system = initial(configuration)
        self.engine = SubjectEngine(configuration, policy, subject)
        self.exact_blocks = exact_blocks
        self.steps = 0
        self.preempted_before: set[str] = set()
        self.events: set[str] = set()

    def run(self, actions: tuple[Action, ...]) -> Comparison:
        """Compare action by action."""
        refused = self.engine.build()
        if refused is not None:
            return Comparison(Ending.REFUSED, 0, self._difference(0, None, _Different("outcome", "built", refused)))
        for number, action in enumerate(actions, 1):
            _, stopped = self.compared(number, action)
            if stopped is not None:
                return stopped
        return Comparison(Ending.EQUAL, self.steps)

    def compared(self, number: int, action: Action) -> tuple[tuple[Observation | Failure, ...], Comparison | None]:
        """Let action `number` happen on both sides: what the subject showed, and why the comparison ends with it."""
        self.seen: list[Observation | Failure] = []
        stopped = None
        try:
            self.perform(action)
        except _Estimate:
            stopped = Comparison(Ending.ESTIMATE, self.steps)
        except _Different as found:
            stopped = Comparison(Ending.DIFFERENT, self.steps, self._difference(number, action, found))
        if stopped is None and self.system.assertion:
            stopped = Comparison(Ending.EQUAL, self.steps)
        return tuple(self.seen), stopped

    def _difference(self, number: int, action: Action | None, found: _Different) -> Difference:
        ours, theirs = FUNCTIONS.get(found.what, FUNCTIONS["outcome"])
        return Difference(number, str(action), found.what, found.model, found.subject, ours, theirs)

    def perform(self, action: Action) -> None:
        """Let `action` happen on both sides and compare. Raises _Different or _Estimate."""
        try:
            after, observations = apply(self.system, self.policy, action)
        except IllegalAction:
            return
        for observation in observations:
            self.seen.append(self.engine.act(action, observation))
            self._compare(observation, self.engine.reply)
        self.system = after

    def _compare(self, observation: Observation, reply: dict[str, Any] | Failure) -> None:
        assertion = observation.after.assertion
        if isinstance(reply, Failure):
            too_few = reply.kind == "ValueError" and "free blocks from the pool" in reply.message
            if too_few and self._takes_blocks:
                raise _Estimate
            if not assertion or not (too_few or reply.kind in ("AssertionError", "ValueError")):
                raise _Different("outcome", assertion or "done", f"{reply.kind}: {reply.message}\n{reply.traceback}")
            return
        if assertion:
            raise _Different("outcome", f"assertion: {assertion}", "done")
        if observation.planned is None:
            if isinstance(observation.action, Preempt | Reset):
                before, after = observation.before.scheduler.running, observation.after.scheduler.running
                self.preempted_before |= set(before) - set(after)
        else:
            self._compare_step(observation, reply["step"])
            self.preempted_before.clear()
            self.steps += 1
        state = model_state(observation.after)
        their_state = {what: subject_state(what, reply, observation.after) for what in state}
        if not self.exact_blocks:
            state, their_state = up_to_renaming(state), up_to_renaming(their_state)
        for what, ours in state.items():
            theirs = their_state[what]
            if ours != theirs:
                raise _Different(what, *_parts_that_differ(ours, theirs))

    def _compare_step(self, observation: Observation, step: dict[str, Any]) -> None:
        plan = observation.planned
        assert plan is not None
        theirs = subject_admissions(observation, step)
        ours = model_admissions(observation)
        both = min(len(ours), len(theirs))
        put_off = [attempt["request"] for attempt in step["attempts"] if attempt["outcome"] == "put_off"]
        unknown = [request for request, _, tokens, _ in step["asked"] if tokens is None]
        groups = len(observation.before.configuration.groups)
        comparisons: tuple[tuple[str, object, object], ...] = (
            ("preempted", sorted(observation.preempted), sorted(set(step["preempted"]) - self.preempted_before)),
            ("admissions", ours[:both], theirs[:both]),
            ("scheduled tokens", [[chunk.request, chunk.count] for chunk in plan.chunks], step["scheduled"]),
            ("admissions", ours, theirs),
            ("put off", list(observation.put_off), put_off),
            ("asked again", list(observation.asked_again), unknown),
            (
                "new blocks",
                {chunk.request: [list(table) for table in chunk.new_blocks] for chunk in plan.chunks},
                {name: tables or [[]] * groups for name, tables in step["new_blocks"].items()},
            ),
            ("copies", [[copy.source, copy.destination] for copy in plan.copies], step["copies"]),
        )
        self._note_events(observation)
        for what, model, subject in comparisons:
            if what in ("new blocks", "copies") and not self.exact_blocks:
                continue
            if model != subject:
                if self._by_estimate(what, observation, step):
                    raise _Estimate
                raise _Different(what, model, subject)

    @property
    def _takes_blocks(self) -> bool:
        """Whether the model takes blocks without an estimate."""
        return self.system.configuration.release.reservation is Reservation.BY_TAKING

    def _by_estimate(self, what: str, observation: Observation, step: dict[str, Any]) -> bool:
        """Whether the subject had no room for a request that the model admitted, resumed or ran in this step."""
        assert observation.planned is not None
        if not self._takes_blocks:
            return False
        started = {chunk.request for chunk in observation.planned.chunks}
        started |= {admission.decision.request for admission in observation.admissions}
        return any(
            attempt["outcome"] == "no_room"
            and attempt["request"] in started
            and attempt["waiting"] == (what != "preempted")
            for attempt in step["attempts"]
        )

    def _note_events(self, observation: Observation) -> None:
        """What happened, to show that a campaign met it."""
        happened = {
            "put off for a state of the step": observation.put_off,
            "asked again": observation.asked_again,
            "preemption": observation.preempted,
            "divergent admission": any(a.decision.diverged and a.decision.external for a in observation.admissions),
            "divergent, reconciled": any(
                a.decision.diverged and not a.decision.external for a in observation.admissions
            ),
            "local hit": any(a.decision.local for a in observation.admissions),
            "synchronous load": any(a.decision.external and a.chunk for a in observation.admissions),
            "asynchronous load": any(not a.chunk for a in observation.admissions),
            "unaligned R": any(
                a.decision.resume % observation.before.configuration.scheduler_block for a in observation.admissions
            ),
            "partial tail copied": observation.plan is not None and observation.plan.copies,
            "partial tail moved": observation.plan is not None
            and any(not copy.replaces for copy in observation.plan.copies),
            "partial tail dropped": any(a.decision.tail_dropped for a in observation.admissions),
            "alias": observation.after.scheduler.pool.aliases,
            "engine assertion": observation.after.assertion,
        }
        self.events |= {event for event, met in happened.items() if met}
        self.events |= {event.id for event in speculation.ENTRIES if event.occurs(observation)}


def _parts_that_differ(ours: Any, theirs: Any) -> tuple[object, object]:
    """Of two mappings only the keys that differ; anything else whole."""
    if not isinstance(ours, dict):
        return ours, theirs
    keys = [key for key in (*ours, *theirs) if ours.get(key) != theirs.get(key)]
    return {key: ours.get(key) for key in keys}, {key: theirs.get(key) for key in keys}
