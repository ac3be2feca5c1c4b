"""`hitbound conform --connector`: a connector of the user's under the clauses of its contract."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Any

import attrs

from hitbound.conform_command import Conformed, SubjectPolicy
from hitbound.judgement import Judgement
from hitbound.progress import Say
from model.errors import HitboundError
from model.trace import Trace
from properties import strict_json
from properties.strict_json import DocumentError
from properties.verdict import Result
from properties.wording import without_numbers
from subjects import connector_conform, courses
from subjects.process import Failure, Subject, SubjectProcess

DRIVER = Path(connector_conform.__file__).with_name("connector_driver.py")


class _Role(Enum):
    BOTH = "kv_both"
    CONSUMER = "kv_consumer"
    PRODUCER = "kv_producer"


@attrs.frozen
class _Configuration:
    """What the file given with `--config` may say; `path` lists folders in which modules are looked for."""

    kv_connector_extra_config: dict[str, Any] = attrs.field(factory=dict)
    kv_role: _Role = _Role.BOTH
    kv_transfer_params: dict[str, Any] = attrs.field(factory=dict)
    path: tuple[str, ...] = ()


class NoConnector(HitboundError):
    """`--connector` does not name a module and a class, or `--config` is given without it."""


class ConnectorConfigurationError(HitboundError):
    """The file given with `--config` cannot be used."""


def named_connector(named: str, file: Path | None) -> connector_conform.RealConnector:
    """The connector that the options name; its module is looked for in the configuration's folders, then in the current
    one. Raises NoConnector or ConnectorConfigurationError."""
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", named):
        raise NoConnector(
            f"--connector {named}: name it as MODULE:CLASS, for example my_package.my_connector:MyConnector"
        )
    module, name = named.split(":")
    said = _configuration(file) if file is not None else _Configuration()
    folder = file.resolve().parent if file is not None else Path.cwd()
    path = [str((folder / entry).resolve()) for entry in said.path]
    return connector_conform.RealConnector(
        module=module,
        name=name,
        extra=said.kv_connector_extra_config,
        role=said.kv_role.value,
        params=said.kv_transfer_params,
        path=(*path, str(Path.cwd())),
    )


def _configuration(file: Path) -> _Configuration:
    converter = strict_json.make_converter()
    try:
        return strict_json.structure(strict_json.parse(strict_json.read_text(file)), _Configuration, converter)
    except DocumentError as error:
        raise ConnectorConfigurationError(f"{file}: {error}") from None


def run(
    subject: Subject, tested: connector_conform.RealConnector, profile: str, seed: int, say: Say, *, checkout: bool
) -> Conformed:
    """Generated traces with the connector in the subject."""
    say(f"starting {subject.tree.name}")
    with SubjectProcess(subject, driver=DRIVER) as process:
        era = courses.policy_of(process.release)
        policy = SubjectPolicy(era, f"{tested.name} on {'vllm' if checkout else f'vllm=={process.release}'}")
        outcome = connector_conform.conform(process, tested, connector_conform.PROFILES[profile], seed, say)
        if isinstance(outcome, Failure):
            judgements = (Judgement(policy.name, connector_conform.does_not_start(outcome)),)
            return Conformed(process.release, policy, judgements)
        say("making what was found smaller")
        found = connector_conform.findings(outcome)
        scope = f"{outcome.traces} traces with {outcome.steps} steps on vLLM {process.release}, seed {seed}"
        results = connector_conform.results(outcome, found, scope)
        return Conformed(
            process.release, policy, tuple(_judgement(policy.name, result, found, subject.tree) for result in results)
        )


def _judgement(policy: str, result: Result, found: tuple[connector_conform.Finding, ...], tree: Path) -> Judgement:
    """A violation was replayed in the subject; its picture is that of this run."""
    replay = next((finding.replay for finding in found if result.trace and _is_of(finding, result.trace)), None)
    if replay is None:
        return Judgement(policy, result)
    signature = without_numbers(result.reason)
    return Judgement(policy, result, signature=signature, replay=replay, tree=tree)


def _is_of(finding: connector_conform.Finding, trace: Trace) -> bool:
    shown = finding.replay.trace
    return (shown.configuration, shown.actions) == (trace.configuration, trace.actions)
