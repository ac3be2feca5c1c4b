"""A scope: what an exhaustive search covers. Small enough that every reachable state can be visited."""

from __future__ import annotations

import enum
from pathlib import Path

import attrs

from model.actions import Abort, Action, Arrive, EndLoad, Preempt, Reset, Step
from model.configuration import Configuration, Scheduling, StateMode
from model.connector import Leaf, leaves_of
from model.errors import HitboundError, IllegalAction
from model.policies import DEFAULT_POLICY, POLICIES
from model.rules.scheduling import Reservation
from model.system import apply, initial
from model.tokens import Prefix, tokens_of
from model.trace import Trace
from properties.trace_document import read_trace

MOST_REQUESTS = 6


class ScopeError(HitboundError):
    """A scope that cannot be searched: nothing arrives, a request that cannot arrive, too much of something, or a
    feature of the model that the search does not know."""


class Disturbance(enum.Enum):
    """What may happen beside arrivals, steps, loads that end well and, under adversarial eviction, evictions."""

    FAILED_LOADS = "failed loads"
    ABORT = "abort"
    PREEMPT = "preempt"
    RESET = "reset"


@attrs.frozen
class Scope:
    """Each of `arrivals` may happen once, at any time and in any order, and so may each of `disturbances`, as often
    as it is possible. `reaches` names events that a search has to meet, where they apply: else it shows too
    little."""

    name: str
    configuration: Configuration
    arrivals: tuple[Arrive, ...]
    disturbances: frozenset[Disturbance] = frozenset()
    reaches: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        if not 1 <= len(self.arrivals) <= MOST_REQUESTS:
            raise ScopeError(f"scope {self.name}: {len(self.arrivals)} requests arrive; use 1 to {MOST_REQUESTS}")
        if self.configuration.steps_in_flight > 1:
            raise ScopeError(f"scope {self.name}: a search has one step in flight; use fuzz for several")
        configuration = self.configuration
        chunked = any(group.chunk is not None for group in configuration.groups)
        every_state = configuration.state_mode is StateMode.ALL or configuration.checkpoint_alignment is not None
        if (
            configuration.has_draft_model
            or configuration.retention is not None
            or chunked
            or every_state
            or configuration.drafts
        ):
            raise ScopeError(
                f"scope {self.name}: the exhaustive search does not know draft models, drafts, sparse retention, "
                "chunked local attention, states in every block and internal checkpoints; use fuzz"
            )
        connector = self.configuration.connector
        for leaf in () if connector is None else leaves_of(connector):
            unknown = _unknown_to_a_search(leaf)
            if unknown:
                raise ScopeError(
                    f"scope {self.name}: leaf {leaf.name!r} {unknown}, which a search does not know; use fuzz"
                )
        if self.configuration.mamba_block not in (None, self.configuration.hash_block):
            raise ScopeError(
                f"scope {self.name}: the Mamba block {self.configuration.mamba_block} is wider than the hash unit "
                f"{self.configuration.hash_block}; the search does not know partial tails, use fuzz"
            )
        if configuration.replay_window or configuration.auxiliary_outputs:
            raise ScopeError(
                f"scope {self.name}: the exhaustive search knows no replay and auxiliary outputs; use fuzz"
            )
        if configuration.scheduling is not Scheduling.FCFS:
            raise ScopeError(f"scope {self.name}: the exhaustive search does not know priorities; use fuzz")
        if configuration.context_ranks > 1:
            raise ScopeError(f"scope {self.name}: the exhaustive search does not know context parallelism; use fuzz")
        if self.configuration.release.reservation is not Reservation.BY_TAKING:
            raise ScopeError(f"scope {self.name}: the exhaustive search does not know estimates of blocks; use fuzz")
        system = initial(self.configuration)
        for arrival in self.arrivals:
            try:
                system, _ = apply(system, POLICIES[DEFAULT_POLICY], arrival)
            except IllegalAction as illegal:
                raise ScopeError(f"scope {self.name}: {illegal}") from None

    @property
    def texts(self) -> tuple[Prefix, ...]:
        """Prompt and output of each request."""
        return tuple(tokens_of(arrival.prompt) + tokens_of(arrival.output) for arrival in self.arrivals)

    @property
    def leaf_names(self) -> tuple[str, ...]:
        """Leaves in the order in which they are asked."""
        connector = self.configuration.connector
        return () if connector is None else tuple(leaf.name for leaf in leaves_of(connector))


def _unknown_to_a_search(leaf: Leaf) -> str:
    if leaf.store is not None:
        return "keeps objects"
    if leaf.peer is not None:
        return "transfers from a peer"
    return "reports the loads of others" if leaf.conduct.reports_unassigned else ""


def scope_of(trace: Trace, name: str) -> Scope:
    """The scope around a trace: its configuration, its arrivals in any order, and what kinds of disturbance occur in
    it. Raises ScopeError."""
    arrivals = tuple(action for action in trace.actions if isinstance(action, Arrive))
    return Scope(name, trace.configuration, arrivals, frozenset(filter(None, map(_disturbance, trace.actions))))


def read_scope(path: Path) -> Scope:
    """The scope around the trace in the file `path`; raises ScopeError or TraceDocumentError."""
    return scope_of(read_trace(path), path.name)


def _disturbance(action: Action) -> Disturbance | None:
    match action:
        case Step(failed_loads=failed) if failed:
            return Disturbance.FAILED_LOADS
        case EndLoad(succeeded=False):
            return Disturbance.FAILED_LOADS
        case Abort():
            return Disturbance.ABORT
        case Preempt():
            return Disturbance.PREEMPT
        case Reset():
            return Disturbance.RESET
    return None
