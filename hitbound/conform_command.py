"""`hitbound conform`: a real vLLM scheduler under the same checks as the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import click

from hitbound.corpus import corpus
from hitbound.corpus_check import EXPECTATION, expectation_of
from hitbound.expectation import unmet
from hitbound.judgement import Judgement
from hitbound.progress import Say
from hitbound.signature import signature_of
from hitbound.subject_command import release_of
from model.errors import HitboundError
from model.policy import Policy
from model.release import NEWEST
from model.trace import Expectation
from properties.replay import Replay
from properties.verdict import Result, Verdict
from subjects import conform, courses, installation, results
from subjects.process import Subject, SubjectProcess

FILE = click.Path(path_type=Path)


class NoSubject(HitboundError):
    """`conform` without a subject, or with two."""


def subject_named(named: str | None, source: Path | None) -> Subject:
    """The subject that the options name. Raises NoSubject or NotInstalled."""
    if (named is None) == (source is None):
        raise NoSubject("name one subject: --subject vllm==X, or a checkout with --source DIR")
    if source is not None:
        return installation.subject_of_source(source)
    return installation.subject_of(release_of(named or ""))


class SubjectPolicy:
    """The policy of a release under the name of the subject, by which reports speak of it."""

    def __init__(self, policy: Policy, name: str) -> None:
        self._policy = policy
        self.name = name

    def __getattr__(self, part: str) -> Any:
        return getattr(self._policy, part)


@attrs.frozen
class Conformed:
    """What a subject was found to do: its release, its policy, and the judgements."""

    release: str
    policy: Policy
    judgements: tuple[Judgement, ...]


def run(subject: Subject, profile: str, seed: int, say: Say, *, checkout: bool) -> Conformed:
    """The corpus and generated traces on the subject. A `checkout` may decide otherwise than the model of its release,
    so there only violations count."""
    say(f"starting {subject.tree.name}")
    with SubjectProcess(subject) as process:
        era = courses.policy_of(process.release)
        policy: Policy = SubjectPolicy(era, "vllm" if checkout else f"vllm=={process.release}")
        judgements = [_corpus(era, policy, process, say)]
        compared = not checkout and any(
            courses.is_compared(process.release, course) for course in courses.courses_on(process.release)
        )
        outcome = conform.conform(process, policy, courses.PROFILES[profile], seed, compare=compared, progress=say)
        say("making what was found smaller")
        found = tuple(results.findings(outcome, process))
        scope = f"{outcome.traces.total()} traces with {outcome.steps} steps on vLLM {process.release}, seed {seed}"
        judgements += (
            _violation(policy, finding, results.violated(finding, outcome, scope), subject.tree) for finding in found
        )
        judgements += (
            Judgement(policy.name, result) for result in results.results(outcome, found, scope, compared=compared)
        )
        return Conformed(process.release, policy, tuple(judgements))


def _violation(policy: Policy, finding: results.Finding, result: Result, tree: Path) -> Judgement:
    """A violation was replayed on the subject; its signature and picture are those of that run."""
    found = finding.signature
    configuration_class = found.configuration_class.value.replace("_", " ")
    signature = "; ".join((found.raised.strip(" :") or signature_of(result, finding.replay), configuration_class))
    return Judgement(policy.name, result, signature=signature, replay=finding.replay, tree=tree)


def _corpus(era: Policy, policy: Policy, process: SubjectProcess, say: Say) -> Judgement:
    """The traces of the corpus that say what the policy of this release does; one that vLLM refuses does not count, nor
    one that shows what some rules beside the policy do."""
    counted = 0
    failed: list[tuple[str, Replay]] = []
    for trace in corpus():
        expected = expectation_of(trace, era)
        if expected is None or trace.configuration.release != NEWEST:
            continue
        say(f"corpus: {trace.title}")
        replayed = conform.run_on(trace, policy, process, whole=True)
        if any(violation.action is None for violation in replayed.violations):
            continue
        counted += 1
        differences = unmet(_seen_on_a_subject(expected), replayed)
        if differences:
            failed.append((f"{trace.title}: {'; '.join(differences)}", replayed))
    if not counted:
        return Judgement(policy.name, _expectation(Verdict.VACUOUS, "the corpus says nothing about this release"))
    if not failed:
        result = attrs.evolve(_expectation(Verdict.HOLDS_WITHIN), scope=f"{counted} traces of the corpus")
        return Judgement(policy.name, result)
    first, replayed = failed[0]
    result = _expectation(Verdict.VIOLATED, f"{len(failed)} of {counted} traces of the corpus, for example {first}")
    return Judgement(policy.name, attrs.evolve(result, trace=replayed.trace), replay=replayed)


def _seen_on_a_subject(expected: Expectation) -> Expectation:
    """Of what is violated, only what can be seen on a real scheduler."""
    return attrs.evolve(expected, violates=tuple(name for name in expected.violates if name in conform.JUDGED))


def _expectation(verdict: Verdict, reason: str = "") -> Result:
    return Result(property=EXPECTATION, engine=results.ENGINE, verdict=verdict, required=True, reason=reason)
