"""Which machine runs a campaign; and runs in which requests are interrupted more often than in a plain one."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from model.actions import Abort, Arrive, EndLoad, Execute, Preempt, Schedule, Step
from model.request import Status
from properties.features import Feature
from properties.machine import Campaign, EngineMachine, InFlightMachine, SpeculationMachine

_STEPS = st.integers(1, 3)


class InterruptedMachine(EngineMachine):
    """A run in which requests are preempted after they put out tokens, and aborted ones come again."""

    def _step(self) -> None:
        if self._alive:
            self._act(Execute() if self._in_flight else Step())

    @precondition(lambda self: self._alive and self._with_status(Status.RUNNING))
    @rule(steps=_STEPS)
    def run_on_and_be_preempted(self, steps: int) -> None:
        """The last running request gets a few steps, is preempted, and is admitted again; what it loads arrives."""
        for _ in range(steps):
            self._step()
        if self._alive and self._with_status(Status.RUNNING):
            self._act(Preempt())
            self._step()
        for name in self._with_status(Status.LOADING):
            if self._alive:
                self._act(EndLoad(name))
        self._step()

    @precondition(lambda self: self._can_arrive and self._with_status(Status.RUNNING))
    @rule(data=st.data())
    def abort_and_come_again(self, data: st.DataObject) -> None:
        """The client gives up a request, with chunks in flight where there may be, and sends the same prompt again."""
        if self._may_schedule_ahead:
            self._act(Schedule())
        running = self._with_status(Status.RUNNING)
        if not self._alive or not running:
            return
        name, again = data.draw(st.sampled_from(running)), f"r{len(self.texts) + 1}"
        arrived = next(each for each in self.actions if isinstance(each, Arrive) and each.request == name)
        self._act(Abort(name))
        self.texts[again] = arrived.prompt + arrived.output
        self._act(Arrive(again, arrived.prompt, arrived.output, arrived.answers))
        if self._alive:
            self._act(Schedule() if self._may_schedule_ahead else Step())


def machine_for(campaign: Campaign) -> type[EngineMachine]:
    """The machine class of a campaign."""
    machines: dict[Feature, type[EngineMachine]] = {
        Feature.STEPS_IN_FLIGHT: InFlightMachine,
        Feature.SPECULATION: SpeculationMachine,
        Feature.INTERRUPTIONS: InterruptedMachine,
    }
    bases = tuple(machine for feature, machine in machines.items() if feature in campaign.features)
    return type("EngineRun", bases or (EngineMachine,), {"campaign": campaign})
