"""Findings: violations that are written up in docs/findings, and those that a file given with `--known` accepts.

What a finding looks like in a report is said once, in `findings.json`; a known file names findings, or says of a
violation of the user's own what it looks like.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs

from hitbound.judgement import Judgement
from model.configuration import ConfigurationClass, WorkerOrder
from model.connector import Contract
from model.errors import HitboundError
from properties import strict_json
from properties.strict_json import DocumentError
from properties.verdict import Cell, Verdict

SCHEMA = "hitbound-known/1"
WRITTEN_UP_SCHEMA = "hitbound-findings/1"
WRITTEN_UP = Path(__file__).with_name("findings.json")


class KnownFindingsError(HitboundError):
    """A `--known` file that cannot be read, or an entry that no longer occurs."""


@attrs.frozen
class Sighting:
    """One violation as reports show it. `signature` is copied from a JSON report. One that is `sampled` is found by
    random runs, with some seeds, so it need not occur."""

    policy: str
    property: str
    signature: str
    cell: Cell | None = None
    sampled: bool = attrs.field(default=False, eq=False)

    def matches(self, judgement: Judgement) -> bool:
        """Whether this is the violation that `judgement` reports."""
        result = judgement.result
        return result.verdict is Verdict.VIOLATED and self == Sighting(
            judgement.policy, result.property, judgement.signature, result.cell
        )


@attrs.frozen
class KnownFinding:
    """An entry of a `--known` file: every sighting of one written-up finding under one policy, or a single one."""

    policy: str
    told: str
    sightings: tuple[Sighting, ...]

    def matches(self, judgement: Judgement) -> bool:
        """Whether this accepts the violation that `judgement` reports."""
        return any(sighting.matches(judgement) for sighting in self.sightings)


@attrs.frozen
class _Cells:
    """Every combination of some contracts, worker orders and classes."""

    contract: tuple[Contract, ...]
    worker_order: tuple[WorkerOrder, ...]
    configuration_class: tuple[ConfigurationClass, ...]


@attrs.frozen
class _WrittenUp:
    """How one finding shows under some policies, in no cell or in several. Subjects are policies called `vllm==X`, and
    `vllm` for a checkout."""

    finding: str
    policies: tuple[str, ...]
    property: str
    signature: str
    cells: _Cells | None = None
    sampled: bool = False

    def sightings(self) -> Iterator[Sighting]:
        for policy, cell in itertools.product(self.policies, _each(self.cells)):
            yield Sighting(policy, self.property, self.signature, cell, self.sampled)


@attrs.frozen
class _WrittenUpFile:
    schema: str
    findings: tuple[_WrittenUp, ...]


@attrs.frozen
class _Entry:
    """A written-up `finding`; or a violation in one cell, in none, or in several, and `why` it is accepted."""

    policy: str
    finding: str | None = None
    property: str | None = None
    signature: str | None = None
    why: str | None = None
    cell: Cell | None = None
    cells: _Cells | None = None

    def findings(self) -> Iterator[KnownFinding]:
        """A written-up finding as one entry, anything else as one for each cell. Raises DocumentError."""
        described = (self.property, self.signature, self.why)
        if self.finding is not None:
            if any(part is not None for part in (*described, self.cell, self.cells)):
                raise DocumentError(f'finding "{self.finding}": only "policy" goes with it, the rest is written up')
            sightings = tuple(each for each in written_up().get(self.finding, ()) if each.policy == self.policy)
            if not sightings:
                ids = ", ".join(written_up())
                raise DocumentError(f'no finding "{self.finding}" of {self.policy} is written up; there are {ids}')
            yield KnownFinding(self.policy, self.finding, sightings)
        elif self.property is None or self.signature is None or self.why is None:
            raise DocumentError(f'an entry for {self.policy} needs "finding", or "property", "signature" and "why"')
        else:
            for cell in (self.cell,) if self.cells is None else _each(self.cells):
                sighting = Sighting(self.policy, self.property, self.signature, cell)
                yield KnownFinding(self.policy, f"{self.property}: {self.signature}", (sighting,))


@attrs.frozen
class _File:
    schema: str
    findings: tuple[_Entry, ...]


def _each(cells: _Cells | None) -> Iterator[Cell | None]:
    if cells is None:
        yield None
    else:
        axes = (cells.contract, cells.worker_order, cells.configuration_class)
        yield from (Cell(*combination) for combination in itertools.product(*axes))


@functools.cache
def written_up() -> dict[str, tuple[Sighting, ...]]:
    """Every finding that has a page in docs/findings and shows in reports: its id, and how it shows."""
    found: dict[str, tuple[Sighting, ...]] = {}
    for entry in _read(WRITTEN_UP, _WrittenUpFile, WRITTEN_UP_SCHEMA).findings:
        found[entry.finding] = (*found.get(entry.finding, ()), *entry.sightings())
    return found


def read_known(path: Path) -> tuple[KnownFinding, ...]:
    """The findings in the file `path`; raises KnownFindingsError."""
    file = _read(path, _File, SCHEMA)
    try:
        return tuple(finding for entry in file.findings for finding in entry.findings())
    except DocumentError as error:
        raise KnownFindingsError(f"{path}: $.findings: {error}") from None


def _read(path: Path, kind: type[Any], schema: str) -> Any:
    converter = strict_json.make_converter()
    converter.register_structure_hook(
        Contract, strict_json.enum_hook({member.name.lower(): member for member in Contract})
    )
    for optional in (Cell, _Cells, str):
        converter.register_structure_hook(
            optional | None, lambda value, _, of=optional: None if value is None else converter.structure(value, of)
        )
    try:
        file = strict_json.structure(strict_json.parse(strict_json.read_text(path)), kind, converter)
    except DocumentError as error:
        raise KnownFindingsError(f"{path}: {error}") from None
    if file.schema != schema:
        raise KnownFindingsError(f'{path}: $.schema: expected "{schema}", got "{file.schema}"')
    return file


def mark_known(judgements: Iterable[Judgement], findings: Collection[KnownFinding]) -> tuple[Judgement, ...]:
    """The judgements; violations carry the finding that they are written up as, and whether `findings` accepts them."""
    return tuple(
        attrs.evolve(
            judgement,
            finding=_written_up_as(judgement),
            known=any(finding.matches(judgement) for finding in findings),
        )
        for judgement in judgements
    )


def _written_up_as(judgement: Judgement) -> str:
    sighted = (name for name, sightings in written_up().items() for each in sightings if each.matches(judgement))
    return next(sighted, "")


def stale(findings: Iterable[KnownFinding], judgements: Collection[Judgement]) -> tuple[KnownFinding, ...]:
    """Findings about the policies that were judged that did not occur, though they do with any seed."""
    policies = {judgement.policy for judgement in judgements}
    return tuple(
        finding
        for finding in findings
        if finding.policy in policies
        and not all(sighting.sampled for sighting in finding.sightings)
        and not any(finding.matches(judgement) for judgement in judgements)
    )
