"""What an entry of the catalogue is: a statement, why it must hold, and how it is checked."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable

import attrs

from model.configuration import ConfigurationClass, Eviction
from model.policy import Policy
from model.system import Observation
from properties.features import Feature
from properties.verdict import Case


class Kind(enum.Enum):
    """SAFETY must hold always. PROTOCOL is how core and connectors talk: broken, it harms no hit by itself, so it is
    reported but not required. COMPLETENESS is the price of being too careful. SOMETIMES has to happen in a run."""

    SAFETY = "safety"
    PROTOCOL = "protocol"
    COMPLETENESS = "completeness"
    SOMETIMES = "sometimes"


class Status(enum.Enum):
    """CHECKED on every observation of the model; WAITS for something that the model cannot express yet."""

    CHECKED = "checked"
    WAITS = "waits"


@attrs.frozen
class Violation:
    """`property` does not hold; `message` has the numbers. `action` is the index of the action in a trace, if known."""

    property: str
    case: Case | None
    message: str
    action: int | None = None


Finding = tuple[Case | None, str]
"""Case and message of a violation; the catalogue adds which property."""

Predicate = Callable[[Observation], Iterable[Finding]]
"""Everything that one observation finds against an invariant; pure."""


@attrs.frozen(kw_only=True)
class Invariant:
    """One entry of the catalogue.

    `number` is the one used in reports (I1 to I19; empty: none), `reports` are public reports of its violation. `proof`
    says which part of the proof is about it. `checked_by` names what checks it if no predicate on observations does.
    `waits_for` says what the invariant, or the part of it that is not checked, waits for.
    """

    id: str
    kind: Kind
    statement: str
    reason: str
    number: str = ""
    reports: tuple[str, ...] = ()
    proof: str = ""
    waits_for: str = ""
    predicate: Predicate | None = None
    checked_by: str = ""

    @property
    def status(self) -> Status:
        return Status.CHECKED if self.predicate or self.checked_by else Status.WAITS


@attrs.frozen
class Setting:
    """Where a run takes place, as far as it decides which events can happen in it; `features` are those drawn."""

    policy: Policy
    configuration_class: ConfigurationClass
    eviction: Eviction
    features: frozenset[Feature] = frozenset()


def draws(feature: Feature) -> Callable[[Setting], bool]:
    """Whether a campaign in the setting draws the feature."""
    return lambda setting: feature in setting.features


@attrs.frozen(kw_only=True)
class Sometimes:
    """An event that runs have to reach, else they show nothing about what follows from it.

    `applies_to` says in words where it can happen, `applies` decides it; elsewhere the event is not applicable, which
    is not the same as reached.
    """

    id: str
    statement: str
    occurs: Callable[[Observation], bool]
    applies_to: str = "every policy and class"
    applies: Callable[[Setting], bool] = lambda _: True
