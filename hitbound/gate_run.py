"""Runs a configured gate: every engine for every policy, and what the configuration requires beyond."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from hitbound import engines
from hitbound.changes import Change
from hitbound.gate import judge
from hitbound.gate_configuration import Engine, Gate, Profile
from hitbound.judgement import SAMPLING_ENGINES, Judgement
from hitbound.known_findings import KnownFinding, mark_known, stale
from hitbound.policy_loading import load_policy
from hitbound.progress import Say
from hitbound.report import Report
from model.errors import PolicyError
from model.policy import Policy
from properties.requirements import required_cells
from properties.verdict import Cell, Result, Verdict

if TYPE_CHECKING:
    from hitbound.conform_command import Conformed

ENGINE = "gate"
"""What is missing was found by no engine, but by the gate."""


def policies_of(gate: Gate) -> tuple[Policy, ...]:
    """The policies of a gate; raises PolicyError."""
    policies = tuple(load_policy(asked) for asked in gate.policies)
    names = [policy.name for policy in policies]
    for asked, name in zip(gate.policies, names, strict=True):
        if names.count(name) > 1:
            raise PolicyError(
                f"{gate.file}: {asked} is called {name!r}, as another policy is; give each a `name` of its own"
            )
    return policies


def run_gate(
    gate: Gate, policies: Sequence[Policy], known: Sequence[KnownFinding], changes: tuple[Change, ...], say: Say
) -> Report:
    """The report on everything that the gate is configured to run."""
    configuration = gate.configuration
    seed = engines.seed_of(configuration.profile.value, configuration.seed)
    judgements: list[Judgement] = []
    for policy in policies:
        results = _results(gate, policy, seed, say)
        judged = judge(policy, results, both_solvers=configuration.profile is not Profile.QUICK)
        cells = (*required_cells(policy), *configuration.cells)
        judgements += with_requirements(policy, judged, configuration.require, cells)
    conformed = [_conformed(gate, subject, seed, say) for subject in configuration.subjects]
    judgements += (judgement for found in conformed for judgement in found.judgements)
    marked = mark_known(judgements, known)
    return Report(
        "gate",
        (*policies, *(found.policy for found in conformed)),
        (*marked, *(Judgement(finding.policy, _gone(finding)) for finding in stale(known, marked))),
        profile=configuration.profile.value,
        seed=seed if Engine.FUZZ in configuration.engines or conformed else None,
        subject=", ".join(f"vllm=={found.release}" for found in conformed) or None,
        accept_bounded=configuration.accept_bounded,
        configured_in=str(gate.file),
        changes=changes,
    )


def _results(gate: Gate, policy: Policy, seed: int, say: Say) -> list[Result]:
    configuration = gate.configuration
    results: list[Result] = []
    if configuration.corpus:
        results += engines.replay_folder(policy, gate.path(configuration.corpus), say)
    if Engine.PROVE in configuration.engines:
        results += engines.prove(policy, say, configuration.cells)
    if Engine.CORPUS in configuration.engines:
        results += engines.replay_corpus(policy, say)
    if Engine.FUZZ in configuration.engines:
        results += engines.fuzz(policy, configuration.profile.value, seed, say)
    if Engine.EXPLORE in configuration.engines:
        results += engines.explore(policy, configuration.scopes, say)
    return results


def _conformed(gate: Gate, subject: str, seed: int, say: Say) -> Conformed:
    """A release that is written as `vllm==X`, or else a checkout."""
    from hitbound.conform_command import run as conform
    from hitbound.conform_command import subject_named

    profile = gate.configuration.profile.value
    if subject.startswith("vllm=="):
        return conform(subject_named(subject, None), profile, seed, say, checkout=False)
    return conform(subject_named(None, gate.path(subject)), profile, seed, say, checkout=True)


def with_requirements(
    policy: Policy, judgements: Iterable[Judgement], require: Mapping[str, Verdict], cells: Sequence[Cell]
) -> tuple[Judgement, ...]:
    """The judgements, with those required that the configuration names; what no engine spoke about is vacuous."""
    judged = tuple(_asked(judgement, require, cells) for judgement in judgements)
    missing = [
        Judgement(policy.name, _nothing_said(property, verdict))
        for property, verdict in require.items()
        if not any(_says(judgement, property, verdict) for judgement in judged)
    ]
    return (*judged, *missing)


def _asked(judgement: Judgement, require: Mapping[str, Verdict], cells: Sequence[Cell]) -> Judgement:
    result = judgement.result
    if result.property not in require:
        return judgement
    counts = result.required or result.cell is None or result.cell in cells
    return attrs.evolve(judgement, result=attrs.evolve(result, required=counts), asked=require[result.property])


def _says(judgement: Judgement, property: str, verdict: Verdict) -> bool:
    """Whether the judgement is about the property, and from an engine that can reach the verdict."""
    able = verdict is not Verdict.PROVED or judgement.result.engine not in SAMPLING_ENGINES
    return judgement.result.property == property and judgement.required and able


def _gone(finding: KnownFinding) -> Result:
    """A known finding that did not occur: left in its file, it would hide the next one like it."""
    return Result(
        property=finding.sightings[0].property,
        engine=ENGINE,
        verdict=Verdict.VACUOUS,
        required=True,
        cell=finding.sightings[0].cell,
        reason=f"the known finding {finding.told!r} no longer occurs; remove it from the file of known findings",
    )


def _nothing_said(property: str, verdict: Verdict) -> Result:
    return Result(
        property=property,
        engine=ENGINE,
        verdict=Verdict.VACUOUS,
        required=True,
        reason=f"{verdict.value} is required, and no engine that ran can say so; add an engine, or require less",
    )
