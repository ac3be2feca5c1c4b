"""Events that runs have to reach: a run that never met one shows nothing about what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from model.actions import EndLoad, Evict, EvictObject, Preempt, Reset
from model.admission import Decision
from model.configuration import Configuration, Eviction, GroupKind, StateMode
from model.connector import Composite, Connector, Leaf, leaves_of
from model.policy import COMMON, PER_GROUP, Summary
from model.pool import NULL_BLOCK, Label
from model.request import Status
from model.store import needed
from model.system import Observation
from properties.features import Feature
from properties.invariant import Setting, Sometimes
from properties.invariants.stores import objects_of, said_by_stores


def _decisions(observation: Observation) -> Iterator[Decision]:
    return (admission.decision for admission in observation.admissions)


def _is_divergent(decision: Decision) -> bool:
    """Whether L lies deeper than some group's own hit."""
    return decision.summary.lookup is PER_GROUP and decision.local > decision.summary.shallowest


def _divergent_hit(observation: Observation) -> bool:
    return any(decision.external > 0 and _is_divergent(decision) for decision in _decisions(observation))


def _fallback(observation: Observation) -> bool:
    return any(
        decision.external == 0 and decision.diverged and decision.local < decision.first_local
        for decision in _decisions(observation)
    )


def _local_hit(observation: Observation) -> bool:
    return any(decision.local > 0 and decision.external == 0 for decision in _decisions(observation))


def _local_and_external_hit(observation: Observation) -> bool:
    return any(decision.local > 0 and decision.external > 0 for decision in _decisions(observation))


def _deeper_than_attention(observation: Observation) -> bool:
    return any(decision.summary.deepest > decision.summary.full_attention for decision in _decisions(observation))


def _attention_lags(observation: Observation) -> bool:
    return any(
        decision.summary.lowest_attention < decision.summary.full_attention for decision in _decisions(observation)
    )


def _unaligned_resume(observation: Observation) -> bool:
    block = observation.after.configuration.mamba_block
    return block is not None and any(decision.resume % block for decision in _decisions(observation))


def _mixed_claims(observation: Observation) -> bool:
    connector = observation.after.configuration.connector
    if connector is None or len({leaf.claims for leaf in leaves_of(connector)}) < 2:
        return False
    return any(decision.external > 0 for decision in _decisions(observation))


def _nested_child_won(observation: Observation) -> bool:
    depths = list(_depths(observation.after.configuration))
    return any(
        decision.external > 0 and 0 <= decision.answer.source < len(depths) and depths[decision.answer.source] > 1
        for decision in _decisions(observation)
    )


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


def _evicted(observation: Observation) -> set[Label]:
    """Labels that are not cached any more, other than by a reset."""
    if isinstance(observation.action, Reset):
        return set()
    return observation.before.scheduler.pool.cached.keys() - observation.after.scheduler.pool.cached.keys()


def _evicted_before_retry(observation: Observation) -> bool:
    evicted = _evicted(observation)
    return any(
        label.prefix == request.tokens[: len(label.prefix)]
        for request in observation.before.scheduler.requests.values()
        if request.status is Status.WAITING and any(request.asked.values()) and not request.computed
        for label in evicted
    )


def _evicted_by_reuse(observation: Observation) -> bool:
    return observation.planned is not None and not observation.rolled_back and bool(_evicted(observation))


def _preemption(observation: Observation) -> bool:
    return bool(observation.preempted) or isinstance(observation.action, Preempt)


def _resumption(observation: Observation) -> bool:
    requests = observation.before.scheduler.requests
    return any(len(decision.prefix) > requests[decision.request].prompt_length for decision in _decisions(observation))


def _synchronous_failure(observation: Observation) -> bool:
    return bool(observation.rolled_back)


def _ended_load(observation: Observation, *, succeeded: bool) -> bool:
    action = observation.action
    return isinstance(action, EndLoad) and action.succeeded is succeeded


def _divergent_load_failed(observation: Observation) -> bool:
    loads = observation.plan.loads if observation.plan is not None else ()
    failed = [load for load in loads if load.fails]
    if isinstance(observation.action, EndLoad) and not observation.action.succeeded:
        failed += observation.before.scheduler.requests[observation.action.request].loads
    return any(min(load.local) < load.start for load in failed)


def _aborted_while_loading(observation: Observation) -> bool:
    return any(request.status is Status.ABORTED_LOADING for request in observation.after.scheduler.requests.values())


def _window_nulls(observation: Observation) -> bool:
    groups = observation.after.configuration.groups
    windows = [index for index, group in enumerate(groups) if group.kind is GroupKind.SLIDING_WINDOW]
    if observation.plan is None:
        return False
    return any(
        chunk.starts and NULL_BLOCK in chunk.new_blocks[index] for chunk in observation.plan.chunks for index in windows
    )


def _state_copied(observation: Observation) -> bool:
    return observation.execution is not None and any(chunk.copied for chunk in observation.execution.chunks)


def _same_step_attention(observation: Observation) -> bool:
    """A request starts on an attention block that another one writes in the same step."""
    if observation.plan is None:
        return False
    mirrors = observation.after.worker.mirrors
    written = {
        (mirrors[chunk.request].block(index, column), chunk.request)
        for chunk in observation.plan.chunks
        for index, group in enumerate(observation.after.configuration.groups)
        if not group.recurrent
        for column in range(chunk.computed // group.block, -(-chunk.end // group.block))
    }
    return any(
        block in chunk.new_blocks[index][: chunk.computed // group.block]
        for chunk in observation.plan.chunks
        if chunk.starts
        for index, group in enumerate(observation.after.configuration.groups)
        if not group.recurrent
        for block, writer in written
        if writer != chunk.request
    )


def _dropped(observation: Observation) -> bool:
    return any(
        view.dropping and decision.local and view.plain.find(view.cap) > view.hit
        for decision in _decisions(observation)
        for view in decision.lookup.views
    )


def _state_not_kept(observation: Observation) -> bool:
    """A chunk ends on the Mamba grid and its state is not cached."""
    configuration, pool = observation.after.configuration, observation.after.scheduler.pool
    block = configuration.mamba_block
    if observation.plan is None or block is None or configuration.retention is None:
        return False
    return any(
        chunk.end % block == 0 and group.recurrent and Label(index, chunk.prefix[: chunk.end]) not in pool.cached
        for chunk in observation.plan.chunks
        for index, group in enumerate(configuration.groups)
    )


def _sparse_hit(observation: Observation) -> bool:
    sparse = observation.after.configuration.retention is not None
    return sparse and any(decision.local and not decision.external for decision in _decisions(observation))


def _checkpoint_stored(observation: Observation) -> bool:
    requests, pool = observation.after.scheduler.requests.values(), observation.after.scheduler.pool
    checkpoints = [(request.tokens, request.checkpoint) for request in requests if request.checkpoint is not None]
    return any(
        group.recurrent and Label(index, tokens[: checkpoint.boundary]) in pool.cached
        for tokens, checkpoint in checkpoints
        for index, group in enumerate(observation.after.configuration.groups)
    )


def _every_state_hit(observation: Observation) -> bool:
    configuration = observation.after.configuration
    every = configuration.state_mode is StateMode.ALL and configuration.mamba_block is not None
    return every and any(decision.local and not decision.external for decision in _decisions(observation))


def _chunk_nulls(observation: Observation) -> bool:
    groups = observation.after.configuration.groups
    chunked = [index for index, group in enumerate(groups) if group.chunk is not None]
    chunks = () if observation.plan is None else observation.plan.chunks
    return any(chunk.starts and NULL_BLOCK in chunk.new_blocks[index] for chunk in chunks for index in chunked)


def _draws(feature: Feature) -> Callable[[Setting], bool]:
    return lambda setting: feature in setting.features


_LAGGING_STATE = Summary(
    lookup=PER_GROUP,
    full_attention=2,
    shallowest=0,
    deepest=2,
    lowest_attention=2,
    common=0,
    aligned_common=0,
    scheduler_block=1,
)
"""Attention has two blocks, a recurrent group nothing: the plainest case in which a policy may diverge."""


def _relies_on_lagging_groups(setting: Setting) -> bool:
    offered = {setting.policy.lookup(claims) for claims in (True, False)}
    return offered != {COMMON} and setting.policy.local(_LAGGING_STATE)[0] > 0


def _says_so(setting: Setting) -> bool:
    return _relies_on_lagging_groups(setting) and setting.policy.local(_LAGGING_STATE)[1]


def _second_attention_spec(setting: Setting) -> bool:
    return setting.configuration_class.second_attention_spec


def _draws_peers(setting: Setting) -> bool:
    return Feature.PEERS in setting.features


def _peer_used_up(observation: Observation) -> bool:
    requests = observation.before.scheduler.requests
    return any(requests[decision.request].transferred for decision in _decisions(observation))


def _draws_stores(setting: Setting) -> bool:
    return Feature.STORES in setting.features


_WITH_STORES = "campaigns with stores"


def _store_loads(observation: Observation) -> bool:
    return any(load.fetches for admission in observation.admissions for load in admission.loads)


def _joined_hit(observation: Observation) -> bool:
    """A store's answer ends below what attention alone has there."""
    configuration = observation.before.configuration
    indexes = [index for index, group in enumerate(configuration.groups) if not group.recurrent]
    return any(
        objects_of(observation.before, leaf).issuperset(
            label
            for index in indexes
            for label in needed(configuration, index, decision.prefix, decision.asked, deeper)
        )
        for decision, leaf, answer in said_by_stores(observation)
        for deeper in (decision.asked + answer.tokens + configuration.scheduler_block,)
        if deeper < len(decision.prefix)
    )


def _gives_up(observation: Observation) -> bool:
    if observation.plan is None:
        return False
    after = observation.after.scheduler.stores
    return any(
        save not in store.pending and save.label not in store.keys
        for name, before in observation.before.scheduler.stores.items()
        for store in (after[name],)
        for save in before.pending
    )


def _loser_saves(observation: Observation) -> bool:
    """A leaf stores for a request that another leaf loaded."""
    if observation.plan is None:
        return False
    loaders = {
        load.request: load.leaf.name
        for admission in observation.started
        for load in admission.loads
        if load.assigned and not load.asynchronous
    }
    return any(loaders.get(save.request, save.leaf) != save.leaf for save in observation.saved)


ENTRIES = (
    Sometimes(
        id="LOCAL-HIT",
        statement="A request is admitted at a boundary R > 0 that is cached in every group, with E = 0.",
        occurs=_local_hit,
    ),
    Sometimes(
        id="LOCAL-AND-EXTERNAL-HIT",
        statement="A request is admitted with L > 0 and E > 0.",
        occurs=_local_and_external_hit,
    ),
    Sometimes(
        id="DIVERGENT-HIT",
        statement="A request is admitted with E > 0 at an L deeper than some group's own hit.",
        occurs=_divergent_hit,
        applies_to="policies whose hit may be deeper than that of a recurrent group",
        applies=_relies_on_lagging_groups,
    ),
    Sometimes(
        id="FALLBACK",
        statement="A divergent hit meets E = 0 and a lower boundary is used.",
        occurs=_fallback,
        applies_to="policies that call such a hit divergent",
        applies=_says_so,
    ),
    Sometimes(
        id="DEEPER-THAN-ATTENTION",
        statement="A group's hit is deeper than that of full attention.",
        occurs=_deeper_than_attention,
    ),
    Sometimes(
        id="ATTENTION-LAGS",
        statement="A second attention group's hit lies below that of the first.",
        occurs=_attention_lags,
        applies_to="the class with a second attention spec",
        applies=_second_attention_spec,
    ),
    Sometimes(
        id="UNALIGNED-RESUME",
        statement="R is no multiple of the Mamba block, so the first chunk goes on in the column of R.",
        occurs=_unaligned_resume,
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
        id="EVICTED-BY-REUSE",
        statement="A cached block is taken for something else.",
        occurs=_evicted_by_reuse,
    ),
    Sometimes(
        id="EVICTED-AT-WILL",
        statement="An unreferenced cached block loses its hash for no reason.",
        occurs=lambda observation: isinstance(observation.action, Evict),
        applies_to="adversarial eviction",
        applies=lambda setting: setting.eviction is Eviction.ADVERSARIAL,
    ),
    Sometimes(id="PREEMPTED", statement="A running request is preempted.", occurs=_preemption),
    Sometimes(
        id="RESUMED",
        statement="A request is admitted again after it has put out tokens, which are part of its prefix now.",
        occurs=_resumption,
    ),
    Sometimes(
        id="PUT-OFF",
        statement="A request hits a recurrent state that is written in the same step, and is put off.",
        occurs=lambda observation: bool(observation.put_off),
    ),
    Sometimes(
        id="SAME-STEP-ATTENTION",
        statement="A request starts on an attention block that another one writes in the same step.",
        occurs=_same_step_attention,
    ),
    Sometimes(
        id="STATE-COPIED",
        statement="A recurrent state is copied to the column in which the chunk ends.",
        occurs=_state_copied,
    ),
    Sometimes(
        id="WINDOW-NULLS",
        statement="A request starts with null columns below its sliding window.",
        occurs=_window_nulls,
        applies_to="the class with a second attention spec",
        applies=_second_attention_spec,
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
        applies=_relies_on_lagging_groups,
    ),
    Sometimes(
        id="ABORTED-WHILE-LOADING",
        statement="A request is aborted while its load is under way.",
        occurs=_aborted_while_loading,
    ),
    Sometimes(
        id="DRAFT-DROP",
        statement="A draft group's hit drops a block, and what is left of it is hit.",
        occurs=_dropped,
        applies_to="runs with draft models",
        applies=_draws(Feature.DRAFT_MODEL),
    ),
    Sometimes(
        id="STATE-NOT-KEPT",
        statement="A state is written at a boundary, and retention does not let it be cached.",
        occurs=_state_not_kept,
        applies_to="runs with sparse retention",
        applies=_draws(Feature.SPARSE_RETENTION),
    ),
    Sometimes(
        id="SPARSE-HIT",
        statement="A request is admitted at a boundary R > 0 that sparse retention kept, with E = 0.",
        occurs=_sparse_hit,
        applies_to="runs with sparse retention",
        applies=_draws(Feature.SPARSE_RETENTION),
    ),
    Sometimes(
        id="CHECKPOINT-STORED",
        statement="A chunk of a prefill stores a second state, which is cached for its boundary.",
        occurs=_checkpoint_stored,
        applies_to="runs with internal checkpoints",
        applies=_draws(Feature.INTERNAL_CHECKPOINT),
    ),
    Sometimes(
        id="EVERY-STATE-HIT",
        statement="A request is admitted at a boundary R > 0 where a state is written in every block, with E = 0.",
        occurs=_every_state_hit,
        applies_to="runs with a state in every block",
        applies=_draws(Feature.EVERY_STATE),
    ),
    Sometimes(
        id="CHUNK-NULLS",
        statement="A request starts with null columns before the chunk of its local attention.",
        occurs=_chunk_nulls,
        applies_to="runs with chunked local attention in the class with a second attention spec",
        applies=lambda setting: _draws(Feature.CHUNKED_LOCAL)(setting) and _second_attention_spec(setting),
    ),
    Sometimes(
        id="RESET",
        statement="The prefix cache is reset.",
        occurs=lambda observation: isinstance(observation.action, Reset),
    ),
    Sometimes(
        id="TRANSFERRED",
        statement="A request is admitted with E > 0 from a peer.",
        occurs=lambda observation: any(load.held for admission in observation.admissions for load in admission.loads),
        applies_to="campaigns with peers",
        applies=_draws_peers,
    ),
    Sometimes(
        id="PEER-USED-UP",
        statement="A request that had a peer is admitted again, and the peer answers 0.",
        occurs=_peer_used_up,
        applies_to="campaigns with peers",
        applies=_draws_peers,
    ),
    Sometimes(
        id="STORED",
        statement="A store saves a recurrent state and attention KV.",
        occurs=lambda observation: (
            len({observation.after.configuration.groups[save.label.group].recurrent for save in observation.saved}) == 2
        ),
        applies_to=_WITH_STORES,
        applies=_draws_stores,
    ),
    Sometimes(
        id="STORE-LOADED",
        statement="A request is admitted with E > 0 from a store.",
        occurs=_store_loads,
        applies_to=_WITH_STORES,
        applies=_draws_stores,
    ),
    Sometimes(
        id="OBJECT-LOST",
        statement="A store loses an object.",
        occurs=lambda observation: isinstance(observation.action, EvictObject),
        applies_to=_WITH_STORES,
        applies=_draws_stores,
    ),
    Sometimes(
        id="JOINED-HIT",
        statement="A store has the attention of a deeper boundary than the one it answers, and lacks a state there.",
        occurs=_joined_hit,
        applies_to=_WITH_STORES,
        applies=_draws_stores,
    ),
    Sometimes(
        id="SAVE-OUTLIVES-REQUEST",
        statement="A save is done after its request has ended.",
        occurs=lambda observation: any(
            save.request not in observation.before.scheduler.requests
            for save in (*observation.flushed, *observation.saved)
        ),
        applies_to=_WITH_STORES,
        applies=_draws_stores,
    ),
    Sometimes(
        id="SAVE-FLUSHED",
        statement="A block changes hands, and a pending save of it is done first.",
        occurs=lambda observation: bool(observation.flushed),
        applies_to=_WITH_STORES,
        applies=_draws_stores,
    ),
    Sometimes(
        id="SAVE-GIVEN-UP",
        statement="A block changes hands, and a pending save of it is given up.",
        occurs=_gives_up,
        applies_to=_WITH_STORES,
        applies=_draws_stores,
    ),
    Sometimes(
        id="LOSER-SAVES",
        statement="A store saves for a request that another leaf loaded.",
        occurs=_loser_saves,
        applies_to=_WITH_STORES,
        applies=_draws_stores,
    ),
)
