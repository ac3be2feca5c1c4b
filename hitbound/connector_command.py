"""`hitbound conform --connector`: a connector of the user's under the clauses of its contract."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import attrs

from hitbound.conform_command import Conformed, SubjectPolicy
from hitbound.judgement import Judgement
from hitbound.progress import Say
from model.errors import HitboundError
from subjects import conform, connector_conform
from subjects.process import Failure, Subject, SubjectProcess

DRIVER = Path(connector_conform.__file__).with_name("connector_driver.py")

ROLES = ("kv_both", "kv_consumer", "kv_producer")

KEYS = {"kv_connector_extra_config": dict, "kv_role": str, "path": list}
"""What a configuration may say, and the JSON type of each."""


class NoConnector(HitboundError):
    """`--connector` does not name a module and a class, or `--config` is given without it."""


class ConnectorConfigurationError(HitboundError):
    """The file given with `--config` cannot be used."""


def named_connector(named: str, file: Path | None) -> connector_conform.Tested:
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
    return connector_conform.Tested(
        module=module,
        name=name,
        extra=said.get("kv_connector_extra_config", {}),
        role=said.get("kv_role", ROLES[0]),
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
    subject: Subject, tested: connector_conform.Tested, profile: str, seed: int, say: Say, *, checkout: bool
) -> Conformed:
    """Generated traces with the connector in the subject."""
    say(f"starting {subject.tree.name}")
    with SubjectProcess(subject, driver=DRIVER) as process:
        era = conform.policy_of(process.release)
        policy = SubjectPolicy(era, f"{tested.name} on {'vllm' if checkout else f'vllm=={process.release}'}")
        outcome = connector_conform.conform(process, tested, connector_conform.PROFILES[profile], seed, say)
        if isinstance(outcome, Failure):
            judgements = (Judgement(policy.name, connector_conform.does_not_start(outcome)),)
            return Conformed(process.release, policy, judgements)
        say("making what was found smaller")
        found = connector_conform.findings(outcome)
        replays = {finding.property: finding.replay for finding in found}
        scope = f"{outcome.traces} traces with {outcome.steps} steps on vLLM {process.release}, seed {seed}"
        return Conformed(
            process.release,
            policy,
            tuple(
                Judgement(
                    policy.name,
                    result,
                    signature=attrs.asdict(result)["reason"] if result.property == conform.NO_ENGINE_ERROR else "",
                    replay=replays.get(result.property) if result.trace is not None else None,
                    tree=subject.tree,
                )
                for result in connector_conform.results(outcome, found, scope)
            ),
        )
