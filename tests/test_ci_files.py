"""What others wire into their CI: the action, the hook and the documented workflow."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from tests.command_line import CHECKOUT

SCHEMAS = files("check_jsonschema.builtin_schemas.vendor")


def yaml(text: str) -> Any:
    return YAML(typ="safe").load(text)


def kept(schema: str, document: Any) -> bool:
    return jsonschema.Draft7Validator(json.loads((SCHEMAS / schema).read_text(encoding="utf-8"))).is_valid(document)


ACTION = yaml((CHECKOUT / "action.yml").read_text(encoding="utf-8"))


def test_the_action_keeps_the_schema_of_github() -> None:
    assert kept("github-actions.json", ACTION)
    assert not kept("github-actions.json", {**ACTION, "runs": {"using": "composite"}})


def test_the_action_passes_inputs_only_through_the_environment() -> None:
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]


def documented(page: str) -> list[Any]:
    text = (CHECKOUT / "docs" / page).read_text(encoding="utf-8")
    return [yaml(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]


def test_the_documented_workflow_keeps_the_schema_and_the_inputs_of_the_action() -> None:
    workflow = documented("in-ci.md")[0]
    assert kept("github-workflows.json", workflow)
    (step,) = (step for step in workflow["jobs"]["gate"]["steps"] if "hitbound" in step.get("uses", ""))
    assert set(step["with"]) <= set(ACTION["inputs"])


def test_the_hook_is_the_one_that_is_documented() -> None:
    (hook,) = yaml((CHECKOUT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert {"id", "name", "entry", "language"} <= set(hook)
    assert documented("in-ci.md")[1]["repos"][0]["hooks"][0]["id"] == hook["id"]
    project = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
    assert all(f'"{requirement}"' in project for requirement in hook["additional_dependencies"])


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "code"), [("vllm-0.28", 0), ("vllm-0.27", 1), ("vllm-9", 2)])
def test_the_script_of_the_action_runs_the_gate_and_fills_the_summary(tmp_path: Path, policy: str, code: int) -> None:
    (tmp_path / "hitbound.toml").write_text(f'policies = ["{policy}"]\nengines = ["prove"]', encoding="utf-8")
    runner = tmp_path / "runner"
    command = runner / "hitbound-environment" / "bin" / "hitbound"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hitbound "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    summary, output = tmp_path / "summary", tmp_path / "output"
    settings = {"CONFIG": "", "PROFILE": "quick", "CHANGED_SINCE": ""}
    machine = {"RUNNER_TEMP": str(runner), "GITHUB_STEP_SUMMARY": str(summary), "GITHUB_OUTPUT": str(output)}
    ran = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", ACTION["runs"]["steps"][-1]["run"]],
        cwd=tmp_path,
        env={**os.environ, **settings, **machine, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code, ran.stderr
    assert f"exit-code={code}\n" in output.read_text(encoding="utf-8")
    assert ("::error" in ran.stdout) == (code == 1)
    if code != 2:
        assert ("NOT passed" in summary.read_text(encoding="utf-8")) == (code == 1)
        assert (
            json.loads((runner / "hitbound-reports" / "hitbound.json").read_text(encoding="utf-8"))["exit_code"] == code
        )
