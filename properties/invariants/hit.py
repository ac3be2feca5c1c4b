"""The hit: what the policy reports."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from model.admission import Decision
from model.configuration import Configuration
from model.connector import may_diverge
from model.policy import PER_GROUP
from model.system import Observation
from properties import wording
from properties.invariant import Finding, Invariant, Kind
from properties.invariants.first_reads import bad_first_reads, case_of, misread
from properties.invariants.stores import missing_at_resume, restored_too_far
from properties.verdict import Case


def resume(observation: Observation) -> Iterator[Finding]:
    for read in bad_first_reads(observation):
        if read.reads_state:
            yield misread(observation, read)


def cover(observation: Observation) -> Iterator[Finding]:
    for read in bad_first_reads(observation):
        if not read.reads_state:
            yield misread(observation, read)


def shrink(observation: Observation) -> Iterator[Finding]:
    for decision in observation.decisions:
        lookup = decision.lookup
        common, cap = decision.summary.common, lookup.views[0].cap
        for call in lookup.accepted:
            if not 0 <= call.result <= call.candidate:
                yield None, f"{decision.request}: spec {call.spec} made {call.result} of the candidate {call.candidate}"
        for spec in _dropped_twice(decision):
            yield (
                None,
                f"{decision.request}: spec {spec} dropped another block of a hit that had been proved with one to drop",
            )
        last_round = lookup.accepted[-len(lookup.views) :]
        if common > 0 and any(call.result != common for call in last_round):
            yield None, f"{decision.request}: the common hit {common} still changes when it is looked up once more"
        if common > cap:
            yield None, f"{decision.request}: the common hit {common} exceeds the cap {cap}"


def _dropped_twice(decision: Decision) -> Iterator[int]:
    """Specs that dropped a block before, and then one of a candidate that stands with the block after it."""
    dropped: set[int] = set()
    for call in decision.lookup.accepted:
        view = decision.lookup.views[call.spec]
        if view.dropping and call.result < call.candidate:
            stands = view.valid(call.candidate) and view.has_one_to_drop(call.candidate)
            if call.spec in dropped and stands:
                yield call.spec
            dropped.add(call.spec)


def member(observation: Observation) -> Iterator[Finding]:
    for decision in observation.decisions:
        relied_on = decision.local == decision.summary.common or decision.external == 0
        if not relied_on or decision.local <= 0:
            continue
        lagging = _lagging(decision, decision.local)
        if lagging:
            yield (
                case_of(decision.external),
                f"{decision.request}: {wording.sum_of(decision.local, decision.external)}, "
                f"but {decision.local} is no valid boundary of {_hits(observation.after.configuration, lagging)}",
            )


def member_of_store(observation: Observation) -> Iterator[Finding]:
    return ((Case.EXTERNAL, message) for message in missing_at_resume(observation))


def _lagging(decision: Decision, boundary: int) -> dict[int, int]:
    """First group of each spec that is not valid at `boundary` -> its greatest valid boundary up to there."""
    return {view.indexes[0]: view.find(boundary) for view in decision.lookup.views if not view.valid(boundary)}


def _hits(configuration: Configuration, hits: dict[int, int]) -> str:
    return ", ".join(f"{wording.group_name(configuration, group)} (valid: {hit})" for group, hit in hits.items())


def last(observation: Observation) -> Iterator[Finding]:
    recurrent = observation.after.configuration.mamba_block is not None
    for decision in observation.decisions:
        N = len(decision.prefix)
        if decision.resume > N or (decision.resume == N and (recurrent or observation.after.assertion)):
            yield (
                case_of(decision.external),
                f"{decision.request}: {wording.sum_of(decision.local, decision.external)}, but N - 1 = {N - 1}",
            )
    for message in restored_too_far(observation):
        yield Case.EXTERNAL, message


def again(observation: Observation) -> Iterator[Finding]:
    for decision in observation.decisions:
        summary = decision.summary
        diverged = summary.lookup is PER_GROUP and decision.first_local > summary.shallowest
        truncated = decision.asked < decision.first_local
        if decision.external != 0 or not (diverged or truncated) or decision.local <= 0:
            continue
        lagging = _lagging(decision, decision.local)
        if lagging:
            yield (
                None,
                f"{decision.request}: E = 0 and L stays {decision.local}; looked up again it would be "
                f"{summary.common}: {_hits(observation.after.configuration, lagging)}",
            )


def meet(observation: Observation) -> Iterator[Finding]:
    connector = observation.after.configuration.connector
    if connector is None or may_diverge(connector):
        return
    for decision in observation.decisions:
        if decision.claims:
            yield None, f"{decision.request}: the connector claims although not every child does"
        if decision.summary.lookup is PER_GROUP:
            yield None, f"{decision.request}: a lookup that may diverge is offered, but not every leaf claims"


ENTRIES = (
    Invariant(
        id="HIT-RESUME",
        number="I1",
        kind=Kind.SAFETY,
        statement="When a request first runs from R > 0, every recurrent group reads exactly state@R of that request's "
        "prefix: from a local checkpoint at R, or from a load of state@R that has committed before that read.",
        reason="A recurrent layer sees the past only through its state. From any other state every later token is "
        "wrong, and nothing fails.",
        reports=(
            "vllm #46453",
            "vllm #48425",
            "vllm #50344",
            "vllm #45804",
            "vllm #46455",
            "vllm #48195",
            "vllm #51468",
            "vllm #54302",
            "vllm #43935",
            "vllm #47491",
            "vllm #53142",
            "vllm #33937",
            "LMCache #2879",
            "LMCache #4247",
        ),
        proof="decision: the admitted R is backed in every recurrent group; cache soundness: what is backed is read",
        predicate=resume,
    ),
    Invariant(
        id="HIT-COVER",
        number="I2",
        kind=Kind.SAFETY,
        statement="Every attention position that the first run can see below R (all of [0, R) for full attention, the "
        "window for sliding window, the chunk for chunked local) is a valid hit or a committed load, in every "
        "attention group.",
        reason="Attention reads all of it; one unwritten block among them makes every later token wrong.",
        reports=("vllm #46453", "vllm #51468"),
        proof="decision: attention below L is local in every attention group, or the contract restores it",
        predicate=cover,
    ),
    Invariant(
        id="HIT-SHRINK",
        number="I3",
        kind=Kind.SAFETY,
        statement="During a lookup a group only accepts or lowers the candidate; the result is a fixed point and at "
        "most the cap; a draft-model drop is applied at most once per group and candidate.",
        reason="What earlier groups have established holds for the candidate and below, never above it.",
        reports=("vllm-ascend #12038", "vllm #43650", "vllm #32802", "vllm #51771"),
        proof="reconciling lookup: the step keeps the invariant of the loop",
        predicate=shrink,
    ),
    Invariant(
        id="HIT-MEMBER",
        number="I4",
        kind=Kind.SAFETY,
        statement="The boundary that is relied on (the common hit; R when E = 0; R when a store loads) is a member of "
        "every group's own set of valid boundaries: never the minimum of the maxima. Truncating a sparse hit list is "
        "not a lookup at the lower bound.",
        reason="Recurrent hits are sparse: a state at 4k says nothing about one at 3k.",
        reports=("vllm #45804", "vllm #46455", "vllm-ascend #11131", "vllm #50359", "tair-kvcache #257"),
        proof="reconciling lookup: on exit the candidate is valid in every group, and no greater one is",
        predicate=lambda observation: chain(member(observation), member_of_store(observation)),
    ),
    Invariant(
        id="HIT-LAST",
        number="I7",
        kind=Kind.SAFETY,
        statement="R <= N - 1 for a model with a recurrent group: no token is applied twice.",
        reason="The last token is always run, for its logits, and a recurrent state cannot be rewound.",
        reports=("vllm #44599", "vllm #51102", "UCM #1130", "vllm #50235"),
        proof="decision: R <= N - 1",
        predicate=last,
    ),
    Invariant(
        id="HIT-AGAIN",
        kind=Kind.SAFETY,
        statement="If E becomes 0, for whatever reason, after L was made divergent or was truncated, L is looked up "
        "again.",
        reason="A divergent L is safe only because the load brings what a group lacks; without a load it lacks it.",
        reports=("vllm #48425",),
        proof="decision: R is a valid boundary of every group when E = 0",
        predicate=again,
    ),
    Invariant(
        id="CAP-MEET",
        number="I19",
        kind=Kind.SAFETY,
        statement="A lookup that may diverge is offered only to a connector that restores lagging state; a composite "
        "claims a capability only if every child does, at any depth; an empty composite claims nothing.",
        reason="Which child will answer is not known when the lookup is chosen.",
        reports=("vllm #50344", "vllm #54302"),
        proof="composition: the claim is the meet of the children's claims, by induction over the tree",
        predicate=meet,
    ),
)
