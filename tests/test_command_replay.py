"""`hitbound replay`: exit code by expectation, and a drawing that shows what the numbers mean."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hitbound.replay_text import replay_text
from model.policies import POLICIES
from properties.trace_document import read_trace
from tests.command_line import CORPUS, Hitbound


@pytest.mark.corpus
@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.json")), ids=lambda path: path.stem)
def test_every_corpus_case_is_as_expected(path: Path) -> None:
    met, text = replay_text(read_trace(path), None, 100)
    assert met, text


def test_an_expected_violation_is_success_and_is_named(hitbound: Hitbound) -> None:
    ran = hitbound("replay", str(CORPUS / "S01.json"))
    assert ran.code == 0
    assert "vllm-0.24: as expected" in ran.out
    assert "HIT-RESUME violated: replay: R = 64 = L 64 + E 0" in ran.out
    assert "needs state@64" in ran.out
    assert "vllm-0.28: as expected\n  violates nothing" in ran.out


def changed(folder: Path, change: Callable[[dict[str, object]], object]) -> Path:
    document = json.loads((CORPUS / "S01.json").read_text(encoding="utf-8"))
    change(document)
    path = folder / "changed.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ({"policy": "vllm-0.28", "violates": ["HIT-RESUME"]}, "HIT-RESUME should be violated and is not"),
        ({"policy": "vllm-0.24"}, "HIT-RESUME is violated and should not be"),
        (
            {"policy": "vllm-0.28", "admissions": [{"request": "replay", "local": 64, "external": 0}]},
            "replay: expected L = 64, E = 0; L = 16, E = 0",
        ),
        (
            {"policy": "vllm-0.28", "admissions": [{"request": "nobody", "local": 0, "external": 0}]},
            "nobody: expected L = 0, E = 0; was never admitted",
        ),
    ],
)
def test_an_unmet_expectation_is_1(hitbound: Hitbound, tmp_path: Path, expected: dict[str, object], said: str) -> None:
    ran = hitbound("replay", str(changed(tmp_path, lambda document: document.update(expectations=[expected]))))
    assert ran.code == 1
    assert "not as expected" in ran.out
    assert said in ran.out


def test_a_policy_can_be_chosen(hitbound: Hitbound) -> None:
    ran = hitbound("replay", str(CORPUS / "S01.json"), "--policy", "vllm-0.28")
    assert ran.code == 0
    assert "vllm-0.24" not in ran.out


def test_a_trace_that_expects_nothing_must_violate_nothing(hitbound: Hitbound, tmp_path: Path) -> None:
    path = str(changed(tmp_path, lambda document: document.pop("expectations")))
    assert hitbound("replay", path).code == 0
    assert hitbound("replay", path, "--policy", "vllm-0.24").code == 1


def test_the_drawing_shows_hits_loads_and_boundaries() -> None:
    _, text = replay_text(read_trace(CORPUS / "S02.json"), POLICIES["vllm-0.24"], 100)
    lines = text.splitlines()
    ruler = next(index for index, line in enumerate(lines) if line.lstrip().startswith("tokens  "))
    names, _, attention, mamba, local, resume = lines[ruler : ruler + 6]
    assert attention.count("[") == 4
    assert attention.count("{") == 1
    assert "(*" in mamba
    assert "!*" in mamba
    assert local.index("^ L = 64") == names.index("64")
    assert resume.index("^ R = 80") == names.index("80")
    assert mamba.rindex("!") == names.index("80")


def test_the_tree_marks_the_winner() -> None:
    _, text = replay_text(read_trace(CORPUS / "S06.json"), POLICIES["vllm-0.28"], 100)
    (winner,) = (line for line in text.splitlines() if "<== wins" in line)
    assert "nixl: claims" in winner
    assert "+- composite of 2: does not claim" in text


@pytest.mark.parametrize("width", [30, 60])
def test_a_narrow_terminal_gets_words_instead_of_a_picture(width: int) -> None:
    _, text = replay_text(read_trace(CORPUS / "S02.json"), POLICIES["vllm-0.24"], width)
    assert "|---" not in text or width >= 60
    if width == 30:
        assert "hit 0..16 in block" in " ".join(text.split())
    assert max(map(len, text[: text.index("connector\n")].splitlines())) <= width
