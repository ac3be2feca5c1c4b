"""The minimiser leaves out and simplifies what a violation does not need, and nothing that it does."""

from model.actions import Action, Arrive, LeafAnswers, Preempt, ScriptedAnswer, Step
from model.configuration import Configuration, Group, GroupKind
from model.tokens import Segment
from model.trace import Trace
from properties.minimise import minimise

CONFIGURATION = Configuration((Group(GroupKind.FULL_ATTENTION, 2),), pool_blocks=9, budget=8)


def arrival(name: str) -> Arrive:
    answers = (LeafAnswers("leaf", (ScriptedAnswer(2),)),)
    return Arrive(name, (Segment("x", 3),), (Segment("o", 1),), answers)


def test_what_is_not_needed_goes() -> None:
    actions: tuple[Action, ...] = (arrival("a"), Step(), Preempt(), arrival("b"), Step(), Step())

    def still_violates(candidate: Trace) -> bool:
        names = [action.request for action in candidate.actions if isinstance(action, Arrive)]
        return "b" in names and candidate.actions[-1] == Step()

    minimal = minimise(Trace("", CONFIGURATION, actions), still_violates)
    assert minimal.actions == (Arrive("b", (Segment("x", 1),), (Segment("o", 1),)), Step())
