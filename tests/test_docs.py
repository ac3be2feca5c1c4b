"""The documentation builds without a warning, and what the tutorial shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import CHECKOUT, Hitbound
from tests.test_init import without_sampling

DOCS = CHECKOUT / "docs"
PAGES = sorted(DOCS.glob("*.md"))


def links(text: str) -> list[str]:
    """Targets of the links to other files of ours, outside code."""
    prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    return [target for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose) if "://" not in target]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for target in links(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_is_in_the_contents() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^[\w-]+$", "\n".join(re.findall(r"```\{toctree\}(.*?)```", index, re.DOTALL)), re.MULTILINE)
    assert sorted(listed) == [page.stem for page in PAGES if page.stem != "index"]


@pytest.mark.slow
def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "--fail-on-warning",
            "--nitpicky",
            "-q",
            "-b",
            "html",
            str(DOCS),
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert {path.stem for path in tmp_path.glob("*.html")} >= {page.stem for page in PAGES}


@pytest.mark.slow
def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text((DOCS / "conf.py").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "index.md").write_text("# Title\n\n[gone](gone.md)\n", encoding="utf-8")
    arguments = ["--fail-on-warning", "-q", "-b", "html", str(tmp_path), str(tmp_path / "out")]
    ran = subprocess.run([sys.executable, "-m", "sphinx", *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    assert "gone.md" in ran.stderr


@pytest.mark.slow
def test_the_tutorial_happens_as_it_is_told(hitbound: Hitbound, tmp_path: Path) -> None:
    tutorial = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    before, after = re.findall(r"```python\n(.*?)```", tutorial, re.DOTALL)
    green, drawing = re.findall(r"```text\n(.*?)```", tutorial, re.DOTALL)
    hitbound("init")
    configuration = tmp_path / "hitbound.toml"
    without_sampling(configuration)
    policy = tmp_path / "policy.py"
    text = policy.read_text(encoding="utf-8")
    assert before in text
    policy.write_text(text.replace(before, after), encoding="utf-8")
    red = hitbound("gate", "--profile", "quick", "--traces", "found")
    assert red.code == 1, red.err
    assert drawing in red.out
    (found,) = set(re.findall(r"found/[\w.-]+\.json", tutorial))
    assert (tmp_path / found).exists()
    explained = hitbound("explain", found, "--policy", "policy.py:MyPolicy")
    assert "Under vllm-0.28: L = 0, E = 0, R = 0; violates nothing." in explained.out
    (tmp_path / "traces").mkdir()
    exported = hitbound("export", found, "--as", "corpus")
    (tmp_path / "traces" / "no-fallback.json").write_text(exported.out, encoding="utf-8")
    (setting,) = re.findall(r"```toml\n(.*?)```", tutorial, re.DOTALL)
    written = configuration.read_text(encoding="utf-8")
    assert f"# {setting}" in written
    configuration.write_text(written.replace(f"# {setting}", setting), encoding="utf-8")
    assert hitbound("gate", "--profile", "quick").code == 1
    policy.write_text(text, encoding="utf-8")
    fixed = hitbound("gate", "--profile", "quick")
    assert fixed.code == 0, fixed.out
    assert green in fixed.out
    assert "1 trace of traces" in fixed.out
