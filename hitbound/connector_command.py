"""`hitbound conform --connector`: a connector of the user's under the clauses of its contract."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hitbound.conform_command import Conformed, SubjectPolicy
from hitbound.judgement import Judgement
from hitbound.progress import Say
from model.errors import HitboundError
from model.trace import Trace
from properties.verdict import Result
from subjects import connector_conform, courses
from subjects.process import Failure, Subject, SubjectProcess

DRIVER = Path(connector_conform.__file__).with_name("connector_driver.py")

ROLES = ("kv_both", "kv_consumer", "kv_producer")

KEYS = {"kv_connector_extra_config": dict, "kv_role": str, "kv_transfer_params": dict, "path": list}
"""What a configuration may say, and the JSON type of each."""


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
    said = _configuration(file) if file is not None else {}
    folder = file.resolve().parent if file is not None else Path.cwd()
    path = [str((folder / entry).resolve()) for entry in said.get("path", ())]
    return connector_conform.RealConnector(
        module=module,
        name=name,
        extra=said.get("kv_connector_extra_config", {}),
        role=said.get("kv_role", ROLES[0]),
        params=said.get("kv_transfer_params", {}),
        path=(*path, str(Path.cwd())),
    )


def _configuration(file: Path) -> dict[str, Any]:
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConnectorConfigurationError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise ConnectorConfigurationError(f"{file}: no JSON: {error}") from None
    if not isinstance(said, dict):
        raise ConnectorConfigurationError(f"{file}: a JSON object is expected, with any of {', '.join(KEYS)}")
    for key, value in said.items():
        if key not in KEYS:
            raise ConnectorConfigurationError(f"{file}: unknown key {key!r}; it may have {', '.join(KEYS)}")
        if not isinstance(value, KEYS[key]):
            raise ConnectorConfigurationError(
                f"{file}: {key} is {json.dumps(value)}; a {KEYS[key].__name__} is expected"
            )
    if said.get("kv_role", ROLES[0]) not in ROLES:
        raise ConnectorConfigurationError(f"{file}: kv_role is {said['kv_role']!r}; use one of {', '.join(ROLES)}")
    if not all(isinstance(entry, str) for entry in said.get("path", ())):
        raise ConnectorConfigurationError(f"{file}: path lists folders, as strings")
    return said


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
    signature = connector_conform.without_numbers(result.reason)
    return Judgement(policy, result, signature=signature, replay=replay, tree=tree)


def _is_of(finding: connector_conform.Finding, trace: Trace) -> bool:
    shown = finding.replay.trace
    return (shown.configuration, shown.actions) == (trace.configuration, trace.actions)
