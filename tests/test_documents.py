"""The pages that are written by hand say what the code says."""

from __future__ import annotations

import re

import pytest

from hitbound.exit_codes import PRECEDENCE
from tests.command_line import CHECKOUT

PACKAGES = ("model", "properties", "solver", "subjects", "hitbound")


def test_the_architecture_names_every_file_once() -> None:
    named = re.findall(
        r"^- `([^`]+\.py)`: .+", (CHECKOUT / "ARCHITECTURE.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    files = {
        str(path.relative_to(CHECKOUT))
        for package in PACKAGES
        for path in (CHECKOUT / package).rglob("*.py")
        if path.name != "__init__.py" or path.parent.name == "policies"
    }
    assert sorted(named) == sorted(files)


def test_the_readme_has_the_table_of_exit_codes() -> None:
    rows = "\n".join(f"| {code.value} | {meaning} |" for code, meaning in PRECEDENCE)
    assert rows in (CHECKOUT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("document", ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "tests/README.md"])
def test_files_that_a_document_names_exist(document: str) -> None:
    text = (CHECKOUT / document).read_text(encoding="utf-8")
    for name in re.findall(r"`((?:model|properties|solver|subjects|hitbound|tests|docs)/[\w./-]+)`", text):
        assert (CHECKOUT / name).exists(), f"{document} names {name}"
