"""Installing subjects: what the user is told when it does not work, and that nothing unfinished is ever used."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from model.errors import HitboundError
from subjects import installation
from subjects.installation import IndexUnreachable, InstallationFailed, NoRoom, NoSuchRelease, NotInstalled
from tests.command_line import Hitbound


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HITBOUND_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "subjects"


def complete_release(cache: Path, release: str) -> None:
    tree = cache / f"vllm-{release}"
    tree.mkdir(parents=True)
    (tree / installation.MANIFEST).write_text("{}")


def complete_runtime() -> None:
    directory = installation.runtime_directory()
    directory.mkdir(parents=True)
    (directory / installation.COMPLETE).touch()


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", NoRoom),
        ("WARNING: Retrying after connection broken by 'NewConnectionError(...)'", IndexUnreachable),
        ("ERROR: No matching distribution found for vllm==9.9.9", NoSuchRelease),
        ("ERROR: something else", InstallationFailed),
    ],
)
def test_what_the_package_client_says_becomes_an_error_of_ours(output: str, kind: type[HitboundError]) -> None:
    assert type(installation._failure(output)) is kind


def test_an_unreachable_index_is_tried_again_and_named_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setattr(installation, "PAUSES", (0.0,))
    said: list[str] = []
    nowhere = installation.Index(index_url="http://127.0.0.1:9/simple").arguments()
    with pytest.raises(IndexUnreachable, match="cannot be reached"):
        installation._run((sys.executable, "-m", "pip", "download", *nowhere, "vllm"), said.append)
    assert said.count("the package index cannot be reached; again in 0 s") == 1


def test_releases_are_listed_in_the_order_of_their_numbers(cache: Path) -> None:
    for release in ("0.33.0", "0.9.1", "0.23.0"):
        complete_release(cache, release)
    (cache / "vllm-0.30.0").mkdir()
    assert installation.installed() == ("0.9.1", "0.23.0", "0.33.0")


def test_what_is_unfinished_is_not_used(cache: Path) -> None:
    complete_release(cache, "0.33.0")
    with pytest.raises(NotInstalled, match=r"hitbound subject install vllm==0\.33\.0"):
        installation.subject_of("0.33.0")
    complete_runtime()
    assert installation.subject_of("0.33.0").tree == cache / "vllm-0.33.0"
    with pytest.raises(NotInstalled, match=r"installed: 0\.33\.0"):
        installation.subject_of("0.32.0")


def test_a_folder_that_is_no_checkout(tmp_path: Path) -> None:
    with pytest.raises(NotInstalled, match="no checkout of vLLM"):
        installation.subject_of_source(tmp_path)


def test_the_last_release_takes_the_environment_along(cache: Path) -> None:
    complete_runtime()
    for release in ("0.32.0", "0.33.0"):
        complete_release(cache, release)
    installation.remove("0.32.0")
    assert installation.runtime_directory().exists()
    installation.remove("0.33.0")
    assert not installation.runtime_directory().exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("subject", "install"), "name a release"),
        (("subject", "install", "vllm==0.33.0", "--source", "."), "name a release"),
        (("subject", "install", "newest"), "write it as vllm==0.33.0"),
        (("subject", "remove", "0.33.0"), "is not installed"),
        (("conform",), "name one subject"),
        (("conform", "--subject", "vllm==0.33.0"), "hitbound subject install vllm==0.33.0"),
        (("conform", "--source", "."), "no checkout of vLLM"),
    ],
)
def test_wrong_usage_says_what_to_do(hitbound: Hitbound, arguments: tuple[str, ...], said: str) -> None:
    ran = hitbound(*arguments)
    assert ran.code == 2
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_nothing_installed_is_an_empty_list(hitbound: Hitbound) -> None:
    ran = hitbound("subject", "list")
    assert (ran.code, ran.out) == (0, "")
