"""The file given with `--known`: findings that are written up somewhere and therefore do not fail the gate."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import attrs

from hitbound.judgement import Judgement
from model.configuration import ConfigurationClass, WorkerOrder
from model.connector import Contract
from model.errors import HitboundError
from properties import strict_json
from properties.strict_json import DocumentError
from properties.verdict import Cell, Verdict

SCHEMA = "hitbound-known/1"


class KnownFindingsError(HitboundError):
    """A `--known` file that cannot be read, or an entry that no longer occurs."""


@attrs.frozen
class KnownFinding:
    """One accepted violation, and `why`: where it is written up. `signature` is copied from a JSON report."""

    policy: str
    property: str
    signature: str
    why: str
    cell: Cell | None = None

    def matches(self, judgement: Judgement) -> bool:
        """Whether this is the violation that `judgement` reports."""
        result = judgement.result
        return result.verdict is Verdict.VIOLATED and (self.policy, self.property, self.cell, self.signature) == (
            judgement.policy,
            result.property,
            result.cell,
            judgement.signature,
        )


@attrs.frozen
class _Cells:
    """Every combination of some contracts, worker orders and classes."""

    contract: tuple[Contract, ...]
    worker_order: tuple[WorkerOrder, ...]
    configuration_class: tuple[ConfigurationClass, ...]


@attrs.frozen
class _Entry:
    """A finding in one cell, in none, or in several."""

    policy: str
    property: str
    signature: str
    why: str
    cell: Cell | None = None
    cells: _Cells | None = None

    def findings(self) -> Iterator[KnownFinding]:
        """One finding for each cell."""
        where: Iterable[Cell | None] = (self.cell,)
        if self.cells is not None:
            axes = (self.cells.contract, self.cells.worker_order, self.cells.configuration_class)
            where = (Cell(*combination) for combination in itertools.product(*axes))
        for cell in where:
            yield KnownFinding(self.policy, self.property, self.signature, self.why, cell)


@attrs.frozen
class _File:
    schema: str
    findings: tuple[_Entry, ...]


def read_known(path: Path) -> tuple[KnownFinding, ...]:
    """The findings in the file `path`; raises KnownFindingsError."""
    converter = strict_json.make_converter()
    converter.register_structure_hook(
        Contract, strict_json.enum_hook({member.name.lower(): member for member in Contract})
    )
    for kind in (Cell, _Cells):
        converter.register_structure_hook(
            kind | None, lambda value, _, kind=kind: None if value is None else converter.structure(value, kind)
        )
    try:
        document = strict_json.parse(strict_json.read_text(path))
        file = strict_json.structure(document, _File, converter)
    except DocumentError as error:
        raise KnownFindingsError(f"{path}: {error}") from None
    if file.schema != SCHEMA:
        raise KnownFindingsError(f'{path}: $.schema: expected "{SCHEMA}", got "{file.schema}"')
    return tuple(finding for entry in file.findings for finding in entry.findings())


def mark_known(judgements: Iterable[Judgement], findings: Collection[KnownFinding]) -> tuple[Judgement, ...]:
    """The judgements, with those violations marked that are written up."""
    return tuple(
        attrs.evolve(judgement, known=any(finding.matches(judgement) for finding in findings))
        for judgement in judgements
    )


def stale(findings: Iterable[KnownFinding], judgements: Collection[Judgement]) -> tuple[KnownFinding, ...]:
    """Findings about the policies that were judged that did not occur."""
    policies = {judgement.policy for judgement in judgements}
    return tuple(
        finding
        for finding in findings
        if finding.policy in policies and not any(finding.matches(judgement) for judgement in judgements)
    )
