"""What a lookup may hope for: the greatest boundary that the rules allow, and the states and windows kept for it.

What is searched, cached and stopped at is up to the rules of the release; a policy can only lower what the lookups
find.
"""

from __future__ import annotations

from collections.abc import Iterator

from model.admission import Decision
from model.configuration import Configuration, GroupKind
from model.geometry import floor_to
from model.lookup import LocalLookup, SpecView, reconcile
from model.plan import Chunk
from model.policies.vllm import Vllm028
from model.pool import Label
from model.request import Request
from model.rules.lookup import DraftDrop
from model.system import Observation
from properties import wording
from properties.invariant import Finding
from properties.verdict import Case

_ACCEPTS_ALL = Vllm028()
"""A policy whose `accept` takes whatever a group finds."""


def lookup_understated(observation: Observation) -> Iterator[Finding]:
    """A common hit below a boundary that is valid in every group and has a block to drop in each draft group."""
    for admission in observation.admissions:
        for message in _below_what_is_valid(observation.after.configuration, admission.decision):
            yield None if _lowered_by_policy(admission.decision.lookup) else Case.RELEASE, message


def _lowered_by_policy(lookup: LocalLookup) -> bool:
    """Whether the same lookup finds more if whatever a group finds is accepted."""
    return reconcile(_ACCEPTS_ALL, lookup.views, lookup.views[0].cap).common > lookup.summary.common


def _below_what_is_valid(configuration: Configuration, decision: Decision) -> Iterator[str]:
    lookup = decision.lookup
    common, view = lookup.summary.common, lookup.views[0]
    drafts = [view for view in lookup.views if any(configuration.groups[index].draft for index in view.indexes)]
    boundary = _valid_in_every_group(lookup.views, view.cap)
    while boundary > common:
        if all(view.has_one_to_drop(boundary) for view in drafts):
            yield (
                f"{decision.request}: the common hit is {common}, though {boundary} is valid in every group"
                + (" and each draft group has a block to drop after it" if drafts else "")
            )
            return
        boundary = _valid_in_every_group(lookup.views, boundary - view.alignment)


def _valid_in_every_group(views: tuple[SpecView, ...], bound: int) -> int:
    """The greatest boundary up to `bound` at which every group may resume, whatever it would drop of it; 0: none."""
    while True:
        before = bound
        for view in views:
            bound = view.plain.find(max(0, bound))
        if bound == before:
            return bound


def landing(configuration: Configuration, tokens: int, cap: int) -> int:
    """Where a request resumes, in tokens, that shares `tokens` tokens with one whose states and blocks are all cached
    for them, and may report `cap` at most: every draft group drops the last unit of what it finds."""
    boundary = cap
    while True:
        before = boundary
        for group in configuration.groups:
            unit = min(group.block, configuration.hit_alignment)
            if group.draft:
                farthest = cap if configuration.release.draft_drop is DraftDrop.WITHIN_THE_CAP else tokens
                boundary = max(0, floor_to(min(boundary + unit, farthest, tokens), unit) - unit)
            elif not group.recurrent:
                boundary = floor_to(min(boundary, tokens), unit)
            boundary = floor_to(boundary, configuration.hit_alignment)
        if boundary == before:
            return boundary


def promised(configuration: Configuration, request: Request) -> frozenset[int]:
    """Boundaries at which what begins with the prompt of `request` has to find it: the same prompt again and, where
    whole blocks are cached and retention is dense or made for a drop, a longer one.

    None where hits are coarser than the Mamba grid, on which a prefill stops: vLLM gives all groups of a hybrid model
    blocks for which that is not so.
    """
    if configuration.mamba_block is not None and configuration.hit_alignment > configuration.mamba_block:
        return frozenset()
    N = request.prompt_length
    boundaries = {landing(configuration, N, N - 1)}
    if not configuration.fine_grained and (configuration.retention is None or configuration.has_draft_model):
        boundaries.add(landing(configuration, N, N))
    return frozenset(boundaries - {0})


def unkept(observation: Observation) -> Iterator[str]:
    """A chunk of a prompt passes a promised boundary, and what a hit there needs is not cached."""
    if observation.planned is None:
        return
    configuration = observation.after.configuration
    spoilt = {*observation.rolled_back, *observation.preempted}
    junctions = {
        admission.decision.request: shared_by_dense_groups(configuration, admission.decision)
        for admission in observation.admissions
    }
    for chunk in observation.planned.chunks:
        request = observation.before.scheduler.requests[chunk.request]
        if chunk.request in spoilt or len(request.tokens) != request.prompt_length or chunk.end > len(request.tokens):
            continue  # rolled back, beyond the prompt, or of a token that is not known before the step has executed
        boundaries = dict.fromkeys(promised(configuration, request), "replay boundary")
        boundaries |= dict.fromkeys(_intervals(configuration, chunk), "interval of the retention")
        if junctions.get(chunk.request):
            boundaries[junctions[chunk.request]] = "shared-prefix junction"
        for boundary, why in sorted(boundaries.items()):
            for index in range(len(configuration.groups)):
                ends = list(_missing(observation, chunk, index, boundary))
                if ends:
                    yield (
                        f"{chunk.request}: nothing is cached of {wording.group_name(configuration, index)} for "
                        f"{ends[0]} tokens, which a hit at {boundary} needs ({why})"
                    )


def shared_by_dense_groups(configuration: Configuration, decision: Decision) -> int:
    """The prefix, in tokens, that all full-attention groups have and of which another group lacks what a hit needs; 0
    if there is none. A state inside a block is kept of a prompt's end only."""
    shared = min(view.hit for view in decision.lookup.views if view.group.kind is GroupKind.FULL_ATTENTION)
    shared = floor_to(shared, configuration.mamba_block or 1)
    return shared if decision.local == decision.resume == decision.summary.common < shared else 0


def _intervals(configuration: Configuration, chunk: Chunk) -> Iterator[int]:
    """Where the chunk ends on a multiple of the retention's interval: a state that exists has to be kept."""
    interval = configuration.scheduler_block if configuration.retention is None else configuration.retention
    if interval and chunk.end % interval == 0:
        yield chunk.end


def _missing(observation: Observation, chunk: Chunk, index: int, boundary: int) -> Iterator[int]:
    """Ends, in tokens, of the blocks that a hit at `boundary` needs, that the chunk completed, and that are not cached.
    What an earlier chunk completed was judged then. Full attention is always cached whole."""
    configuration = observation.after.configuration
    group, cached = configuration.groups[index], observation.after.scheduler.pool.cached
    if group.kind is GroupKind.FULL_ATTENTION:
        return
    ends: set[int] = set()
    if chunk.computed < boundary <= chunk.end:
        if group.recurrent:
            ends = {boundary}
        else:
            columns = range(group.sees_from(boundary) // group.block, boundary // group.block)
            ends = {(column + 1) * group.block for column in columns}
    if group.draft and chunk.computed < boundary + group.block <= chunk.end:
        ends.add(boundary + group.block)
    yield from (end for end in sorted(ends) if Label(index, chunk.prefix[:end]) not in cached)
