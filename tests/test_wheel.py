"""What users install: the wheel is whole, and works in an environment where there is no checkout."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGES = ("model", "properties", "solver", "subjects", "hitbound")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built through a source distribution, so that this is whole as well; nothing is downloaded."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(CHECKOUT)],
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel; what it depends on is lent by the environment of the tests."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder / "bin"


def run(command: Path, *arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([command, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_the_wheel_is_whole(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    sources = {
        str(path.relative_to(CHECKOUT))
        for package in PACKAGES
        for path in (CHECKOUT / package).rglob("*")
        if path.suffix in {".py", ".json"} or path.name == "py.typed"
    }
    assert sources <= names
    corpus = {f"hitbound/corpus/{path.name}" for path in (CHECKOUT / "tests" / "corpus").glob("*.json")}
    assert corpus
    assert corpus <= names
    outside = {name.partition("/")[0] for name in names} - {*PACKAGES, "hitbound-0.1.0.dist-info"}
    assert not outside
    assert "hitbound-0.1.0.dist-info/licenses/LICENSE" in names


def test_the_metadata_pin_the_solvers(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = message_from_bytes(archive.read("hitbound-0.1.0.dist-info/METADATA"))
    required = metadata.get_all("Requires-Dist") or []
    assert "z3-solver==5.4.1.0" in required
    assert "cvc5==1.4.2; extra == 'cvc5'" in required


def test_the_installed_command_helps(installed: Path, tmp_path: Path) -> None:
    helped = run(installed / "hitbound", "--help", folder=tmp_path)
    assert helped.returncode == 0, helped.stderr
    assert "Exit codes" in helped.stdout


def test_the_installed_command_replays_the_installed_corpus(installed: Path, tmp_path: Path) -> None:
    where = "import hitbound.corpus, pathlib; print(pathlib.Path(hitbound.corpus.__file__).with_name('corpus'))"
    corpus = Path(run(installed / "python", "-c", where, folder=tmp_path).stdout.strip())
    assert CHECKOUT not in corpus.parents
    replayed = run(installed / "hitbound", "replay", corpus / "S01.json", folder=tmp_path)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


def test_the_installed_command_lists_the_invariants(installed: Path, tmp_path: Path) -> None:
    listed = run(installed / "hitbound", "invariants", "--format", "json", folder=tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert json.loads(listed.stdout)["invariants"]


def test_another_model_package_is_not_taken_for_ours(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "__init__.py").write_text("", encoding="utf-8")
    refused = run(installed / "python", "-m", "hitbound", "--help", folder=tmp_path)
    assert refused.returncode == 2
    assert f"the package `model` that Python finds is not hitbound's: {tmp_path}" in refused.stderr
    assert "pipx install hitbound" in refused.stderr
