"""What requests read wrongly when they first run from a boundary: the evidence that a hit was not safe."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from model.execution import BadRead
from model.system import Observation
from model.worker import written_by
from properties import wording
from properties.invariant import Finding
from properties.verdict import Case


def case_of(external: int) -> Case:
    """Where an admission with E = `external` takes its boundary from."""
    return Case.EXTERNAL if external > 0 else Case.LOCAL


def bad_reads(observation: Observation) -> Iterator[BadRead]:
    """Bad reads of the step that are news: not those of chunks whose output is dropped, above all because a failed load
    rolled the request back, for these count for nothing, nor those of requests that had read wrongly before, for these
    follow from that."""
    if observation.execution is None:
        return
    mirrors = observation.before.worker.mirrors
    for read in observation.execution.bad_reads:
        follows = not read.starts and not mirrors[read.request].sound
        if read.request not in observation.rolled_back and not follows and not dropped(observation, read.request):
            yield read


def dropped(observation: Observation, name: str) -> bool:
    """Whether the output of the request's chunk in flight is dropped when it has executed, for the request starts anew,
    or is gone: it was aborted, or a failed load ended it."""
    request = observation.before.scheduler.requests.get(name)
    return request is None or (request.stale > 0 and request.drop_stale)


def is_first_read(read: BadRead) -> bool:
    """Whether it is a read below the boundary from which a request first runs."""
    return read.starts and len(read.needed.prefix) <= read.computed


def bad_first_reads(observation: Observation) -> Iterator[BadRead]:
    """Bad reads below R of the requests that start in this step."""
    return (read for read in bad_reads(observation) if is_first_read(read))


def misread(observation: Observation, read: BadRead) -> Finding:
    """A bad first read as a violation, with R and its parts."""
    told = wording.bad_read(observation.after.configuration, read, observation.after.texts[read.request])
    case, boundary = _resumed_at(observation, read)
    return case, f"{read.request}: {boundary}; {told}"


def written_blocks(observation: Observation, requests: Collection[str]) -> set[int]:
    """Blocks that the chunks of `requests` wrote in this step."""
    if observation.plan is None:
        return set()
    mirrors = observation.after.worker.mirrors
    return {
        block
        for chunk in observation.plan.chunks
        if chunk.request in requests
        for block in written_by(observation.after.configuration, mirrors[chunk.request], chunk)
    }


def _resumed_at(observation: Observation, read: BadRead) -> tuple[Case, str]:
    """The boundary from which the request of `read` starts: by an admission now, or one that announced a load."""
    for admission in observation.started:
        if admission.decision.request == read.request:
            local, external = admission.decision.local, admission.decision.external
            return case_of(external), wording.sum_of(local, external)
    request = observation.before.scheduler.requests.get(read.request)
    loads = request.loads if request is not None else ()
    if loads:
        return Case.EXTERNAL, wording.sum_of(loads[0].start, loads[0].end - loads[0].start)
    return Case.EXTERNAL, f"R = {read.computed}, loaded before"
