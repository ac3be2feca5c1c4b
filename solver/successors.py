"""The successors of a state as the readable model gives them: decode, apply, judge, encode. Nothing is remembered."""

from __future__ import annotations

import enum
from collections.abc import Iterator

import attrs

from model.actions import Abort, Action, Arrive, EndLoad, Evict, Preempt, Reset, Step
from model.errors import HitboundError
from model.policy import Policy
from model.pool import Label
from model.system import Observation, System, apply, initial
from properties.invariant import Violation
from properties.judge import events, violations
from properties.policy_guard import PolicyRaised
from solver.codec import Cached, Code, Codec, CodecFault, NotEncodable
from solver.enabled import enabled, failing_steps
from solver.scope import Scope


class Kind(enum.IntEnum):
    """What an action number stands for in its high byte. The low byte is a request's position in the scope, the
    label's symbol for EVICT, and for STEP the set of requests whose loads fail, a bit each."""

    STEP = 0
    ARRIVE = 1
    EVICT = 2
    LOAD_ENDS = 3
    LOAD_FAILS = 4
    ABORT = 5
    PREEMPT = 6
    RESET = 7


@attrs.frozen(eq=False)
class Judged:
    """What the catalogue says of a transition; shared by all transitions of which it says the same."""

    violations: tuple[Violation, ...] = ()
    events: frozenset[str] = frozenset()


UNREMARKABLE = Judged()

Successor = tuple[int, Code | None, Judged]
"""Number of the action, the state after it (None: nothing follows, for something has gone wrong), and the judgement."""


class Successors:
    """The successor function of a scope under a policy."""

    def __init__(self, scope: Scope, policy: Policy, codec: Codec) -> None:
        self.scope = scope
        self.policy = policy
        self.codec = codec
        self._index = {name: number for number, name in enumerate(codec.names)}

    @property
    def initial(self) -> Code:
        """The state in which nothing has arrived."""
        return self.codec.encode(initial(self.scope.configuration))

    def of(self, code: Code) -> Iterator[Successor]:
        """Every successor, an action each."""
        return self.of_state(self.codec.decode(code))

    def of_state(self, system: System) -> Iterator[Successor]:
        """Every successor of a state that need not have come from a code."""
        for action in enabled(self.scope, system):
            if isinstance(action, Step):
                yield from self.steps(system)
            else:
                yield self.successor(system, action)[0]

    def steps(self, system: System) -> Iterator[Successor]:
        """The step, and the same step with each choice of loads that fail."""
        successor, observation = self.successor(system, Step())
        yield successor
        if observation is not None and observation.plan is not None:
            for failing in failing_steps(self.scope, observation.plan):
                yield self.successor(system, failing)[0]

    def successor(self, system: System, action: Action) -> tuple[Successor, Observation | None]:
        """What `action` leads to; no observation if the policy raised."""
        number = self.number_of(action)
        try:
            after, (observation,) = apply(system, self.policy, action)
        except PolicyRaised as raised:
            return (number, None, Judged((Violation("POLICY-TOTAL", None, str(raised)),))), None
        judged = Judged(violations(observation), events(observation))
        if after.assertion:
            return (number, None, judged), observation
        try:
            code = self.codec.encode(after)
        except NotEncodable as reason:
            if not judged.violations:
                raise CodecFault(f"{action}: {reason}, and no invariant is violated") from None
            return (number, None, judged), observation
        return (number, code, judged), observation

    def number_of(self, action: Action) -> int:
        """The number of an action that is possible in this scope."""
        match action:
            case Step(failed_loads=failed):
                return Kind.STEP << 8 | sum(1 << self._index[name] for name in failed)
            case Arrive(request=name):
                return Kind.ARRIVE << 8 | self._index[name]
            case Evict(group=group, request=name, boundary=boundary):
                prefix = self.codec.texts[self._index[name]][:boundary]
                return Kind.EVICT << 8 | self.codec.symbol(Cached(Label(group, prefix)))
            case EndLoad(request=name, succeeded=succeeded):
                return (Kind.LOAD_ENDS if succeeded else Kind.LOAD_FAILS) << 8 | self._index[name]
            case Abort(request=name):
                return Kind.ABORT << 8 | self._index[name]
            case Preempt():
                return Kind.PREEMPT << 8
            case Reset():
                return Kind.RESET << 8
        raise HitboundError(f"{action} is no action of a search; use single steps")

    def action_of(self, number: int, system: System) -> Action:
        """The action with this number, as it is called in `system`."""
        kind, argument = Kind(number >> 8), number & 255
        names = self.codec.names
        match kind:
            case Kind.STEP:
                return Step(tuple(sorted(name for bit, name in enumerate(names) if argument >> bit & 1)))
            case Kind.ARRIVE:
                return self.scope.arrivals[argument]
            case Kind.EVICT:
                cached = self.codec.symbols[argument]
                assert isinstance(cached, Cached)
                label = cached.label
                length = len(label.prefix)
                speller = next(name for name, text in system.texts.items() if text[:length] == label.prefix)
                return Evict(label.group, speller, length)
            case Kind.LOAD_ENDS | Kind.LOAD_FAILS:
                return EndLoad(names[argument], kind is Kind.LOAD_ENDS)
            case Kind.ABORT:
                return Abort(names[argument])
            case Kind.PREEMPT:
                return Preempt()
            case Kind.RESET:
                return Reset()
