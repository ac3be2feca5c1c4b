"""What a gate is configured to do: `hitbound.toml`, or the table `[tool.hitbound]` of pyproject.toml."""

from __future__ import annotations

import enum
import tomllib
from pathlib import Path
from typing import Any

import attrs

from model.connector import Contract
from model.errors import HitboundError
from properties import strict_json
from properties.catalogue import INVARIANTS
from properties.strict_json import DocumentError
from properties.verdict import Cell, Verdict

OWN_FILE = "hitbound.toml"
PROJECT_FILE = "pyproject.toml"
PROJECT_TABLE = "tool.hitbound"

REACHED = {verdict.value: verdict for verdict in (Verdict.PROVED, Verdict.HOLDS_WITHIN)}
"""Verdicts that can be required: only these ever mean success."""


class GateConfigurationError(HitboundError):
    """A configuration of the gate that is missing or malformed; the message names file, key and what is allowed."""


class Engine(enum.Enum):
    """What the gate can run for each policy."""

    PROVE = "prove"
    CORPUS = "corpus"
    FUZZ = "fuzz"
    EXPLORE = "explore"


class Profile(enum.Enum):
    """How much is sampled, and whether a proof needs both solvers; see `hitbound check --help`."""

    QUICK = "quick"
    CI = "ci"
    NIGHTLY = "nightly"


@attrs.frozen(kw_only=True)
class GateConfiguration:
    """One gate. Paths are as they are written: relative to the directory of the file.

    `require` asks for more than every policy has to hold, or says that a bounded verdict is enough for one property.
    `cells` are required beside the cell that every policy must hold. `corpus` is a folder of traces that must violate
    nothing. `known` is a file of accepted findings. `scopes` are for the engine `explore`; none: every named scope.
    `subjects` are real engines: installed releases ("vllm==0.33.0"), or folders with a checkout of vLLM.
    """

    policies: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    engines: tuple[Engine, ...] = (Engine.PROVE, Engine.CORPUS, Engine.FUZZ)
    profile: Profile = Profile.CI
    seed: int | None = None
    require: dict[str, Verdict] = attrs.Factory(dict)
    cells: tuple[Cell, ...] = ()
    scopes: tuple[str, ...] = ()
    corpus: str = ""
    known: str = ""
    accept_bounded: bool = False


@attrs.frozen
class Gate:
    """A configuration and the file it was read from."""

    file: Path
    configuration: GateConfiguration

    def path(self, written: str) -> Path:
        """A path of the configuration, from the current directory where that is possible."""
        path = self.file.parent / written
        return path.relative_to(Path()) if not path.is_absolute() else path

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies as `--policy` takes them."""
        return tuple(
            str(self.path(file)) + colon + name if colon else policy
            for policy in self.configuration.policies
            for file, colon, name in [policy.rpartition(":")]
        )


def find_gate(file: Path | None) -> Gate:
    """The gate that `file` configures, or the current directory; raises GateConfigurationError."""
    if file is not None:
        return read_gate(file)
    own, project = Path(OWN_FILE), Path(PROJECT_FILE)
    in_project = project.exists() and "hitbound" in _toml(project).get("tool", {})
    if own.exists() and in_project:
        raise GateConfigurationError(f"{own} and [{PROJECT_TABLE}] in {project} both configure the gate; keep one")
    if own.exists() or in_project:
        return read_gate(own if own.exists() else project)
    raise GateConfigurationError(
        f"no {OWN_FILE} here, no [{PROJECT_TABLE}] in {PROJECT_FILE}; `hitbound init` writes one, --config names one"
    )


def read_gate(file: Path) -> Gate:
    """The gate that `file` configures; raises GateConfigurationError, which names file, key and the allowed values."""
    document, table = _toml(file), ""
    if file.name == PROJECT_FILE:
        document, table = document.get("tool", {}).get("hitbound", {}), f"{PROJECT_TABLE}."
        if not document:
            raise GateConfigurationError(f"{file}: there is no table [{PROJECT_TABLE}]; `hitbound init` shows one")
    try:
        configuration = strict_json.structure(document, GateConfiguration, _converter())
        _check(configuration)
    except DocumentError as error:
        raise GateConfigurationError(f"{file}: {_in_toml(str(error), table)}") from None
    return Gate(file, configuration)


def _in_toml(problems: str, table: str) -> str:
    """Paths as TOML writes them, below the table."""
    return problems.replace("$: ", f"{table.removesuffix('.')}: " if table else "").replace("$.", table)


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(strict_json.read_text(file))
    except DocumentError as error:
        raise GateConfigurationError(f"{file}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise GateConfigurationError(f"{file}: not TOML ({error})") from None


def _check(configuration: GateConfiguration) -> None:
    if not configuration.policies and not configuration.subjects:
        raise DocumentError(
            '$.policies: name at least one, as in policies = ["policy.py:MyPolicy"], or a real engine in $.subjects'
        )
    if not configuration.engines:
        raise DocumentError(f"$.engines: name at least one of {', '.join(engine.value for engine in Engine)}")
    for property in configuration.require:
        if property not in INVARIANTS:
            raise DocumentError(f"$.require.{property}: no such property; use one of {', '.join(INVARIANTS)}")
    if configuration.scopes and Engine.EXPLORE not in configuration.engines:
        raise DocumentError('$.scopes: scopes are for the engine "explore", which is not among the engines')


def _converter() -> Any:
    converter = strict_json.make_converter()
    converter.register_structure_hook(
        Contract, strict_json.enum_hook({member.name.lower(): member for member in Contract})
    )
    converter.register_structure_hook(Verdict, strict_json.enum_hook(REACHED))
    converter.register_structure_hook(
        int | None, lambda value, _: None if value is None else converter.structure(value, int)
    )
    return converter
