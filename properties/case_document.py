"""Public reports as cases: one JSON document per record, with the rules before and after the fix and what is seen under
each.

`case.schema.json` beside this file describes the shape to other tools. What equals its default is left out.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from model.connector import Contract
from model.errors import PolicyError
from model.policies import policy_named
from model.policy import Policy
from model.trace import ExpectedAdmission, Trace
from properties import strict_json
from properties.catalogue import INVARIANTS
from properties.features import Feature
from properties.invariant import Kind
from properties.strict_json import DocumentError
from properties.trace_document import CONVERTER, trace_from_document
from properties.trace_document import SCHEMA as TRACE_SCHEMA
from properties.verdict import Case as VerdictCase

SCHEMA = "hitbound-case/1"
SCHEMA_FILE = Path(__file__).with_name("case.schema.json")


class FaultKind(enum.Enum):
    """What went wrong, as a user would say it."""

    OVERSTATED_HIT = "overstated hit"
    NO_STATE = "no state at the resume boundary"
    LOCAL_CONTENT = "wrong local content"
    STORED_CONTENT = "wrong stored content"
    APPLIED_TWICE = "last token applied twice"
    VISIBILITY = "visibility"
    OWNERSHIP = "ownership, reservation or leak"
    RECOVERY = "load-failure recovery"
    PROTOCOL = "connector protocol or livelock"
    GEOMETRY = "geometry or positional mapping"
    OVER_STRICT = "over-strict assertion"
    UNDERSTATED = "hit understated"


class Evidence(enum.Enum):
    """A: mechanism and numbers were in the report. B: the mechanism was; trace or right value are reconstructed."""

    A = "A"
    B = "B"


class CaseDocumentError(DocumentError):
    """A case that cannot be read: malformed, with a wrong or unknown key, or one that could not show anything."""


@attrs.frozen
class ExpectedViolation:
    """`property` is violated, and a message about it contains `says`."""

    property: str
    says: str = ""


@attrs.frozen
class Tolerated:
    """After this fix `property` is still violated, `because` of another fault with a record of its own."""

    property: str
    because: str


class Engine(enum.Enum):
    """The engines that may find a violation without the trace of the record."""

    FUZZ = "fuzz"
    PROVE = "prove"


@attrs.frozen(kw_only=True)
class Unaided:
    """How `engine` finds what the record is about without its trace: a violation of `property` in this `case` of E (if
    it has cases), with a message that contains `says`, where leaves keep at least `contract`.

    Release, worker order and class are those of the variants. Only for fuzz: `features` are drawn, `connector` says
    that every configuration has the connector of the case (else any is drawn), `runs` is the budget.
    """

    engine: Engine
    property: str
    case: VerdictCase | None = None
    says: str = ""
    contract: Contract = Contract.BACKED
    features: tuple[Feature, ...] = ()
    connector: bool = False
    runs: int = 100


@attrs.frozen
class Variant:
    """The rules before or after the fix, and what is seen under them on the trace.

    `admissions` are the admissions of each request that is named, in order, as many as are stated (the first for most).
    `never_admitted` names requests that stay waiting. `assertion` is part of the engine assertion that fails; empty:
    none does.
    """

    policy: str
    trace: Trace
    admissions: tuple[ExpectedAdmission, ...]
    never_admitted: tuple[str, ...]
    assertion: str

    @property
    def rules(self) -> Policy:
        """The cache-hit policy."""
        return policy_named(self.policy)


@attrs.frozen
class Case:
    """One record. `violates` are the record's invariants: violated before, and not after.

    `functions` are those the report is about. `fix` names all that differs between `before` and `after`: fields of the
    configuration (as `release.adoption`) and parts of the policy (as `policy.settle`).
    """

    number: int
    reports: tuple[str, ...]
    title: str
    fault: FaultKind
    evidence: Evidence
    assumed: str
    functions: tuple[str, ...]
    violates: tuple[ExpectedViolation, ...]
    tolerates: tuple[Tolerated, ...]
    fix: tuple[str, ...]
    before: Variant
    after: Variant
    unaided: Unaided | None

    @property
    def name(self) -> str:
        """The first report, as in `vllm #46453`."""
        return self.reports[0]


@attrs.frozen(kw_only=True)
class _VariantDocument:
    policy: str
    configuration: dict[str, Any] = attrs.Factory(dict)
    admissions: tuple[ExpectedAdmission, ...] = ()
    never_admitted: tuple[str, ...] = ()
    assertion: str = ""


@attrs.frozen(kw_only=True)
class _CaseDocument:
    """The shape of the document; `configuration` of a variant overrides that of the case, key by key."""

    record: int
    reports: tuple[str, ...]
    title: str
    fault: FaultKind
    evidence: Evidence
    functions: tuple[str, ...]
    violates: tuple[ExpectedViolation, ...]
    fix: tuple[str, ...]
    before: _VariantDocument
    after: _VariantDocument
    configuration: dict[str, Any]
    actions: list[Any]
    assumed: str = ""
    tolerates: tuple[Tolerated, ...] = ()
    unaided: Unaided | None = None


def case_from_document(document: object) -> Case:
    """The case that a JSON value describes; raises CaseDocumentError."""
    try:
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            found = json.dumps(document.get("schema")) if isinstance(document, dict) else "no object"
            raise DocumentError(f'$.schema: expected "{SCHEMA}", got {found}; is this a case?')
        body = {key: value for key, value in document.items() if key != "schema"}
        raw = strict_json.structure(body, _CaseDocument, CONVERTER)
        _check(raw)
        return Case(
            number=raw.record,
            reports=raw.reports,
            title=raw.title,
            fault=raw.fault,
            evidence=raw.evidence,
            assumed=raw.assumed,
            functions=raw.functions,
            violates=raw.violates,
            tolerates=raw.tolerates,
            fix=raw.fix,
            before=_variant(raw, raw.before, "before"),
            after=_variant(raw, raw.after, "after"),
            unaided=raw.unaided,
        )
    except DocumentError as error:
        raise CaseDocumentError(str(error)) from None


def read_case(path: Path) -> Case:
    """The case in the file `path`; raises CaseDocumentError, which names the file."""
    try:
        return case_from_document(strict_json.parse(strict_json.read_text(path)))
    except DocumentError as error:
        raise CaseDocumentError(f"{path}: {error}") from None


def overridden(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` on top: objects key by key, everything else (lists too) as a whole."""
    merged = dict(base)
    for key, change in changes.items():
        old = merged.get(key)
        both = isinstance(old, dict) and isinstance(change, dict)
        merged[key] = overridden(old, change) if both else change  # type: ignore[arg-type]
    return merged


def _variant(case: _CaseDocument, variant: _VariantDocument, name: str) -> Variant:
    document = {
        "schema": TRACE_SCHEMA,
        "title": f"{case.reports[0]}, {name} the fix: {case.title}",
        "configuration": overridden(case.configuration, variant.configuration),
        "actions": case.actions,
    }
    try:
        policy_named(variant.policy)
        trace = trace_from_document(document)
    except (DocumentError, PolicyError) as error:
        raise DocumentError(f"{name}: {error}") from None
    return Variant(variant.policy, trace, variant.admissions, variant.never_admitted, variant.assertion)


def _check(case: _CaseDocument) -> None:
    """A case that states nothing, or contradicts itself, could not show anything."""
    if not case.reports or not case.fix:
        raise DocumentError("$: `reports` and `fix` name at least one report and one difference")
    violated = {expected.property for expected in case.violates}
    if not violated:
        raise DocumentError("$.violates: empty; name what is violated before the fix")
    tolerated = {each.property for each in case.tolerates}
    for property in sorted(violated | tolerated):
        if property not in INVARIANTS:
            raise DocumentError(f"{property}: no such invariant; `hitbound invariants` lists them")
    if violated & tolerated:
        raise DocumentError(f"$.tolerates: {', '.join(sorted(violated & tolerated))} is what the fix repairs")
    if case.unaided is not None and case.unaided.property not in violated:
        raise DocumentError(f"$.unaided.property: {case.unaided.property} is not what the record violates")
    if case.evidence is Evidence.B and not case.assumed:
        raise DocumentError("$.assumed: evidence B; say what was assumed")
    if all(INVARIANTS[property].kind is Kind.COMPLETENESS for property in violated) and not case.after.admissions:
        raise DocumentError("$.after.admissions: a record about completeness states the right hit")
