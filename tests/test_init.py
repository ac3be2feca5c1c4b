"""`hitbound init`: what it writes passes the gate, documents every key, and never replaces anything."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import attrs
import pytest

from hitbound.gate_configuration import GateConfiguration, read_gate
from hitbound.init_command import FILES, TEMPLATES, init
from hitbound.policy_loading import load_policy
from model.policies import POLICIES
from tests.command_line import Hitbound


def test_init_writes_a_configuration_and_a_policy(hitbound: Hitbound, tmp_path: Path) -> None:
    ran = hitbound("init")
    assert ran.code == 0, ran.err
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)
    assert "hitbound gate" in ran.out
    assert read_gate(tmp_path / "hitbound.toml").configuration == GateConfiguration(policies=("policy.py:MyPolicy",))


@pytest.mark.parametrize("name", FILES)
def test_init_replaces_nothing_and_then_writes_nothing(hitbound: Hitbound, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine", encoding="utf-8")
    ran = hitbound("init")
    assert ran.code == 2
    assert f"{name} exists already" in ran.err
    assert [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] == ["mine"]


def test_the_template_names_every_key_and_its_comments_are_valid() -> None:
    text = (TEMPLATES / "hitbound.toml.template").read_text(encoding="utf-8")
    settings = re.sub(r"^# (?=\[|[\w-]+ = )", "", text, flags=re.MULTILINE)
    assert set(tomllib.loads(settings)) == {field.name for field in attrs.fields(GateConfiguration)}


def test_the_template_policy_is_vllm_0_28_part_by_part(tmp_path: Path) -> None:
    init(tmp_path)
    policy, shipped = load_policy(f"{tmp_path / 'policy.py'}:MyPolicy"), POLICIES["vllm-0.28"]
    own = {part for part in vars(type(policy)) if callable(getattr(policy, part))}
    assert own == {"lookup", "local", "settle"}
    assert policy.name == "my-policy"
    assert isinstance(policy, type(shipped))


def without_sampling(configuration: Path) -> None:
    """Leave the fuzzer out: it takes most of the time, and other tests run it."""
    text = configuration.read_text(encoding="utf-8")
    configuration.write_text(text.replace('"prove", "corpus", "fuzz"', '"prove", "corpus"'), encoding="utf-8")


@pytest.mark.slow
def test_the_template_is_green_and_red_once_its_fallback_is_gone(hitbound: Hitbound, tmp_path: Path) -> None:
    hitbound("init")
    without_sampling(tmp_path / "hitbound.toml")
    ran = hitbound("gate", "--profile", "quick")
    assert ran.code == 0, ran.out + ran.err
    policy = tmp_path / "policy.py"
    text = policy.read_text(encoding="utf-8")
    policy.write_text(text.replace("(summary.common if diverged else L), 0", "L, 0"), encoding="utf-8")
    ran = hitbound("gate", "--profile", "quick")
    assert ran.code == 1
    assert "HIT-RESUME violated" in ran.out
