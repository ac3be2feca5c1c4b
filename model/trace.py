"""A trace: configuration, actions and what is expected of them. Its JSON form is `properties/trace_document.py`."""

from __future__ import annotations

import attrs

from model.actions import Action
from model.configuration import Configuration


@attrs.frozen
class ExpectedAdmission:
    """The first admission of `request` adopts `local` + `external` tokens (L + E)."""

    request: str
    local: int
    external: int


@attrs.frozen
class Expectation:
    """What one policy does on the trace: admissions, and exactly these invariants violated (none: it is silent)."""

    policy: str
    admissions: tuple[ExpectedAdmission, ...] = ()
    violates: tuple[str, ...] = ()


@attrs.frozen
class Trace:
    """A run that can be replayed. `title` says in one line what it shows; `source` where it comes from."""

    title: str
    configuration: Configuration
    actions: tuple[Action, ...]
    expectations: tuple[Expectation, ...] = ()
    source: str = ""
