"""A trace as the model runs it: what a real scheduler is compared with."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from model.errors import IllegalAction
from model.policy import Policy
from model.system import Observation, apply, initial
from model.trace import Trace


@attrs.frozen
class ModelRun:
    """A trace, every action of which is legal in the model, and what the model observes at each."""

    trace: Trace
    observed: tuple[tuple[Observation, ...], ...]

    @property
    def numbered(self) -> Iterator[tuple[int, Observation]]:
        """Every observation with the index of its action."""
        return ((index, seen) for index, each in enumerate(self.observed) for seen in each)

    def up_to(self, action: int) -> Trace:
        """The trace without what follows the action of that index."""
        return attrs.evolve(self.trace, actions=self.trace.actions[: action + 1])


def model_run(trace: Trace, policy: Policy) -> ModelRun:
    """Run `trace` on the model. Actions that are not legal where they stand are left out."""
    system = initial(trace.configuration)
    done, observed = [], []
    for action in trace.actions:
        try:
            system, seen = apply(system, policy, action)
        except IllegalAction:
            continue
        done.append(action)
        observed.append(seen)
    return ModelRun(attrs.evolve(trace, actions=tuple(done)), tuple(observed))
