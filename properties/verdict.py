"""Verdicts: one schema for every engine, and what a combined verdict is worth."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import attrs

from model.configuration import ConfigurationClass, WorkerOrder
from model.connector import Contract
from model.trace import Trace


class Verdict(enum.Enum):
    """From strongest to weakest evidence for the property; only the first two ever mean success."""

    PROVED = "PROVED"
    HOLDS_WITHIN = "HOLDS_WITHIN"
    UNKNOWN = "UNKNOWN"
    VACUOUS = "VACUOUS"
    CTI = "CTI"
    VIOLATED = "VIOLATED"

    @property
    def weakness(self) -> int:
        """0 for the strongest; a combined verdict is as weak as its weakest part."""
        return list(Verdict).index(self)


class Case(enum.Enum):
    """Whether an admission takes its boundary from the local cache alone (E = 0) or with external tokens (E > 0); or
    that no policy can do better, for what the rules of the release keep and find of a prefix is less than they could.
    """

    LOCAL = "E = 0"
    EXTERNAL = "E > 0"
    RELEASE = "by the rules of the release"


@attrs.frozen
class Cell:
    """One cell of a policy's matrix.

    `contract` is the least that every leaf keeps; a leaf that claims keeps at least ENDPOINT in every cell.
    """

    contract: Contract
    worker_order: WorkerOrder
    configuration_class: ConfigurationClass


ALL_CELLS = tuple(
    Cell(contract, order, configuration_class)
    for order in WorkerOrder
    for configuration_class in ConfigurationClass
    for contract in Contract
)

REQUIRED_CELL = Cell(Contract.BACKED, WorkerOrder.LOAD_BEFORE_COPY, ConfigurationClass.ONE_ATTENTION_SPEC)
"""What every policy must hold: the cell that vllm-0.28 holds."""


@attrs.frozen(kw_only=True)
class Result:
    """What one engine found out about one property.

    `cell` and `case` say where; None where the property does not depend on it. `scope` is the bound under which
    HOLDS_WITHIN holds. `assumes` names what the verdict rests on. `solvers` are those that agree. `reason` says in one
    line why the verdict is not better. `detail` holds the engine's own evidence (core, vacuity, counts), JSON values.
    """

    property: str
    engine: str
    verdict: Verdict
    required: bool
    cell: Cell | None = None
    case: Case | None = None
    scope: str = ""
    assumes: tuple[str, ...] = ()
    solvers: tuple[str, ...] = ()
    reason: str = ""
    trace: Trace | None = None
    detail: dict[str, Any] = attrs.Factory(dict)


CACHE_SOUNDNESS = "cache soundness"
"""What a proof may rest on: what a lookup calls valid, or a load restores, is read as it was promised."""

AGREEMENT = "the encoding of the cache agrees with the model"
"""What the proof of cache soundness itself rests on: its transitions are those of the model, as tests compare."""


def weakest(verdicts: Iterable[Verdict]) -> Verdict:
    """The combined verdict; of nothing it is VACUOUS."""
    return max(verdicts, key=lambda verdict: verdict.weakness, default=Verdict.VACUOUS)
