"""Events of connectors: who answers and loads, and loads that end or fail."""

from __future__ import annotations

from collections.abc import Iterator

from model.actions import EndLoad
from model.configuration import Configuration
from model.connector import Composite, Connector, Leaf, leaves_of
from model.request import Status
from model.system import Observation
from properties.events.blocks import evicted
from properties.events.hits import relies_on_lagging_groups
from properties.features import Feature
from properties.invariant import Sometimes, draws


def _mixed_claims(observation: Observation) -> bool:
    connector = observation.after.configuration.connector
    if connector is None or len({leaf.claims for leaf in leaves_of(connector)}) < 2:
        return False
    return any(decision.external > 0 for decision in observation.decisions)


def _depths(configuration: Configuration) -> Iterator[int]:
    """Number of composites around each leaf, in the order of asking."""

    def walk(connector: Connector, depth: int) -> Iterator[int]:
        match connector:
            case Leaf():
                yield depth
            case Composite(children):
                for child in children:
                    yield from walk(child, depth + 1)

    if configuration.connector is not None:
        yield from walk(configuration.connector, 0)


def _nested_child_won(observation: Observation) -> bool:
    depths = list(_depths(observation.after.configuration))
    return any(
        decision.external > 0 and 0 <= decision.answer.source < len(depths) and depths[decision.answer.source] > 1
        for decision in observation.decisions
    )


def _evicted_before_retry(observation: Observation) -> bool:
    gone = evicted(observation)
    return any(
        label.prefix == request.tokens[: len(label.prefix)]
        for request in observation.before.scheduler.requests.values()
        if request.status is Status.WAITING and any(request.asked.values()) and not request.computed
        for label in gone
    )


def _ended_load(observation: Observation, *, succeeded: bool) -> bool:
    action = observation.action
    return isinstance(action, EndLoad) and action.succeeded is succeeded


def _synchronous_failure(observation: Observation) -> bool:
    return bool(observation.rolled_back)


def _divergent_load_failed(observation: Observation) -> bool:
    loads = observation.plan.loads if observation.plan is not None else ()
    failed = [load for load in loads if load.fails]
    if isinstance(observation.action, EndLoad) and not observation.action.succeeded:
        failed += observation.before.scheduler.requests[observation.action.request].loads
    return any(min(load.local) < load.start for load in failed)


def _failed_in_part(observation: Observation) -> bool:
    loads = observation.plan.loads if observation.plan is not None else ()
    groups = observation.after.configuration.groups
    return any(load.failed_blocks and not load.fails and load.failed(groups) for load in loads)


def _aborted_while_loading(observation: Observation) -> bool:
    return any(request.status is Status.ABORTED_LOADING for request in observation.after.scheduler.requests.values())


def _peer_used_up(observation: Observation) -> bool:
    requests = observation.before.scheduler.requests
    return any(requests[decision.request].transferred for decision in observation.decisions)


ENTRIES = (
    Sometimes(
        id="EXTERNAL-HIT",
        statement="A request is admitted with E > 0.",
        occurs=lambda observation: any(decision.external > 0 for decision in observation.decisions),
    ),
    Sometimes(
        id="MIXED-CLAIMS",
        statement="Some leaves claim and some do not, and E > 0 is adopted.",
        occurs=_mixed_claims,
    ),
    Sometimes(
        id="NESTED-CHILD-WON",
        statement="The leaf that loads lies at least two composites deep.",
        occurs=_nested_child_won,
    ),
    Sometimes(
        id="ASKED-AGAIN",
        statement="A connector does not know yet, and the request waits to ask again.",
        occurs=lambda observation: bool(observation.asked_again),
    ),
    Sometimes(
        id="EVICTED-BEFORE-RETRY",
        statement="Between an unknown answer and the next question, something of the request's prefix is evicted.",
        occurs=_evicted_before_retry,
    ),
    Sometimes(
        id="LOADED-ASYNCHRONOUSLY",
        statement="An asynchronous load ends well.",
        occurs=lambda observation: _ended_load(observation, succeeded=True),
    ),
    Sometimes(
        id="ASYNCHRONOUS-LOAD-FAILED",
        statement="An asynchronous load fails.",
        occurs=lambda observation: _ended_load(observation, succeeded=False),
    ),
    Sometimes(
        id="SYNCHRONOUS-LOAD-FAILED",
        statement="A synchronous load fails, and requests are rolled back.",
        occurs=_synchronous_failure,
    ),
    Sometimes(
        id="DIVERGENT-LOAD-FAILED",
        statement="The load that a divergent hit relies on fails.",
        occurs=_divergent_load_failed,
        applies_to="policies whose hit may be deeper than that of a recurrent group",
        applies=relies_on_lagging_groups,
    ),
    Sometimes(
        id="FAILED-IN-PART",
        statement="A load fails to fill some of its blocks.",
        occurs=_failed_in_part,
        applies_to="campaigns with loads that fail in part",
        applies=draws(Feature.FAILED_BLOCKS),
    ),
    Sometimes(
        id="ABORTED-WHILE-LOADING",
        statement="A request is aborted while its load is under way.",
        occurs=_aborted_while_loading,
    ),
    Sometimes(
        id="TRANSFERRED",
        statement="A request is admitted with E > 0 from a peer.",
        occurs=lambda observation: any(load.held for admission in observation.admissions for load in admission.loads),
        applies_to="campaigns with peers",
        applies=draws(Feature.PEERS),
    ),
    Sometimes(
        id="PEER-USED-UP",
        statement="A request that had a peer is admitted again, and the peer answers 0.",
        occurs=_peer_used_up,
        applies_to="campaigns with peers",
        applies=draws(Feature.PEERS),
    ),
)
