"""A step that was planned and has not been executed yet: what its output will need.

vLLM keeps the `SchedulerOutput` until `update_from_output`; with one step in flight it lives only within a step.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from model.admission import Admission
from model.plan import StepPlan
from model.pool import Label


@attrs.frozen
class Published:
    """What one chunk published when it was planned: its blocks, and the labels of recurrent states among them."""

    blocks: tuple[int, ...] = ()
    states: frozenset[Label] = frozenset()


@attrs.frozen
class InFlight:
    """One step in flight. `admissions` are those whose first chunk it runs, or whose load it starts; `published` is by
    request. `freed` are blocks, in the order of their release, that are free once it has executed (vLLM:
    `deferred_frees`)."""

    plan: StepPlan
    admissions: tuple[Admission, ...] = ()
    published: Mapping[str, Published] = attrs.Factory(dict)
    freed: tuple[int, ...] = ()

    @property
    def states(self) -> frozenset[Label]:
        """Labels of all recurrent states that it writes and that are published."""
        return frozenset().union(*(published.states for published in self.published.values()))
