"""Events of admission: which boundary a request is admitted at, and how it was chosen."""

from __future__ import annotations

from model.admission import Decision
from model.configuration import GroupKind
from model.policy import COMMON, PER_GROUP, Summary
from model.pool import NULL_BLOCK
from model.system import Observation
from properties.features import Feature
from properties.invariant import Setting, Sometimes, draws


def _local_hit(observation: Observation) -> bool:
    return any(decision.local > 0 and decision.external == 0 for decision in observation.decisions)


def _local_and_external_hit(observation: Observation) -> bool:
    return any(decision.local > 0 and decision.external > 0 for decision in observation.decisions)


def _is_divergent(decision: Decision) -> bool:
    """Whether L lies deeper than some group's own hit."""
    return decision.summary.lookup is PER_GROUP and decision.local > decision.summary.shallowest


def _divergent_hit(observation: Observation) -> bool:
    return any(decision.external > 0 and _is_divergent(decision) for decision in observation.decisions)


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


def relies_on_lagging_groups(setting: Setting) -> bool:
    """Whether the policy may report a hit that is deeper than that of a recurrent group."""
    offered = {setting.policy.lookup(claims) for claims in (True, False)}
    return offered != {COMMON} and setting.policy.local(_LAGGING_STATE)[0] > 0


def _fallback(observation: Observation) -> bool:
    return any(
        decision.external == 0 and decision.diverged and decision.local < decision.first_local
        for decision in observation.decisions
    )


def _says_so(setting: Setting) -> bool:
    return relies_on_lagging_groups(setting) and setting.policy.local(_LAGGING_STATE)[1]


def _deeper_than_attention(observation: Observation) -> bool:
    return any(decision.summary.deepest > decision.summary.full_attention for decision in observation.decisions)


def _attention_lags(observation: Observation) -> bool:
    return any(
        decision.summary.lowest_attention < decision.summary.full_attention for decision in observation.decisions
    )


def _unaligned_resume(observation: Observation) -> bool:
    block = observation.after.configuration.mamba_block
    return block is not None and any(decision.resume % block for decision in observation.decisions)


def _window_nulls(observation: Observation) -> bool:
    groups = observation.after.configuration.groups
    windows = [index for index, group in enumerate(groups) if group.kind is GroupKind.SLIDING_WINDOW]
    if observation.plan is None:
        return False
    return any(
        chunk.starts and NULL_BLOCK in chunk.new_blocks[index] for chunk in observation.plan.chunks for index in windows
    )


def _chunk_nulls(observation: Observation) -> bool:
    groups = observation.after.configuration.groups
    chunked = [index for index, group in enumerate(groups) if group.chunk is not None]
    chunks = () if observation.plan is None else observation.plan.chunks
    return any(chunk.starts and NULL_BLOCK in chunk.new_blocks[index] for chunk in chunks for index in chunked)


def _second_attention_spec(setting: Setting) -> bool:
    return setting.configuration_class.second_attention_spec


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
        applies=relies_on_lagging_groups,
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
        id="WINDOW-NULLS",
        statement="A request starts with null columns below its sliding window.",
        occurs=_window_nulls,
        applies_to="the class with a second attention spec",
        applies=_second_attention_spec,
    ),
    Sometimes(
        id="CHUNK-NULLS",
        statement="A request starts with null columns before the chunk of its local attention.",
        occurs=_chunk_nulls,
        applies_to="runs with chunked local attention in the class with a second attention spec",
        applies=lambda setting: draws(Feature.CHUNKED_LOCAL)(setting) and _second_attention_spec(setting),
    ),
)
