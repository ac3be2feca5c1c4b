"""Which machine runs a campaign; and runs in which requests are interrupted more often than in a plain one."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from model.actions import Abort, Arrive, EndLoad, Preempt, Schedule, Step
from model.request import Status
from model.tokens import Segment
from properties.features import Feature
from properties.machine import Campaign, EngineMachine, InFlightMachine, SpeculationMachine
from properties.strategies import longest_text

_STEPS = st.integers(1, 3)


class InterruptedMachine(EngineMachine):
    """A run in which requests are preempted after they put out tokens, and aborted ones come again."""

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


class PriorityMachine(EngineMachine):
    """A run in which requests may have priorities."""

    @precondition(lambda self: self._can_arrive and not self._with_status(Status.RUNNING))
    @rule(data=st.data())
    def outrank(self, data: st.DataObject) -> None:
        """A long request arrives while another puts out tokens, and goes before it: together they fill the pool."""
        assert self.configuration is not None
        block, longest = self.configuration.scheduler_block, longest_text(self.configuration)
        self._arrive_alone(data.draw(st.integers(1, 2 * block)), 2 * block, priority=1)
        for _ in range(3):
            self._step()
        if self._can_arrive:
            self._arrive_alone(longest - block, block, priority=0)
        for _ in range(6):
            self._step()

    def _arrive_alone(self, prompt: int, output: int, *, priority: int) -> None:
        """A request arrives that shares nothing with others."""
        number = len(self.texts) + 1
        text, out = (Segment(f"t{number}", prompt),), (Segment(f"o{number}", output),)
        self.texts[f"r{number}"] = text + out
        self._act(Arrive(f"r{number}", text, out, priority=priority))


def machine_for(campaign: Campaign) -> type[EngineMachine]:
    """The machine class of a campaign."""
    machines: dict[Feature, type[EngineMachine]] = {
        Feature.STEPS_IN_FLIGHT: InFlightMachine,
        Feature.SPECULATION: SpeculationMachine,
        Feature.PRIORITIES: PriorityMachine,
        Feature.INTERRUPTIONS: InterruptedMachine,
    }
    bases = tuple(machine for feature, machine in machines.items() if feature in campaign.features)
    return type("EngineRun", bases or (EngineMachine,), {"campaign": campaign})
