"""Installs subjects: one private environment, and the source tree of each vLLM release, under a cache directory.

Everything comes from the package index with the ordinary client, so its configuration by the user is honoured. What
is unfinished lacks its mark: an interrupted installation is gone on with, never used.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from model.errors import HitboundError
from subjects.process import Subject, SubjectProcess, cache_directory
from subjects.runtime import BUILD, BUILD_ENVIRONMENT, PACKAGES, TORCH, WITHOUT_DEPENDENCIES

Say = Callable[[str], None]

ROOM_FOR_RUNTIME = 3 << 30
ROOM_FOR_TREE = 1 << 30
"""Bytes that have to be free before an installation begins; it needs about a half of that."""

PAUSES = (2.0, 10.0, 30.0)
"""Seconds to wait before the package client is run again after the index could not be reached."""

COMPLETE = "complete"
"""A file that is made last in the environment."""

MANIFEST = "hitbound-subject.json"
"""In a complete source tree: which release it is, and the checksum of the archive it came from."""


class IndexUnreachable(HitboundError):
    """The package index does not answer."""


class NoSuchRelease(HitboundError):
    """The package index has no source distribution of that release."""


class LargeDownload(HitboundError):
    """Only a build of torch with CUDA is offered, which is several GB."""


class NoRoom(HitboundError):
    """The disk is too full for an installation."""


class InstallationFailed(HitboundError):
    """The package client failed in another way."""


class NotInstalled(HitboundError):
    """A subject is asked for that is not installed."""


@attrs.frozen
class Index:
    """Where packages come from beside the user's configuration, as arguments of the package client."""

    index_url: str | None = None
    extra_index_url: str | None = None

    def arguments(self) -> tuple[str, ...]:
        named = (("--index-url", self.index_url), ("--extra-index-url", self.extra_index_url))
        return tuple(part for option, url in named if url for part in (option, url))


def runtime_directory() -> Path:
    """The environment that runs all subjects; another set of pins or another Python is another environment."""
    pins = "\n".join((TORCH, *PACKAGES, *WITHOUT_DEPENDENCIES, *BUILD, sys.version))
    return cache_directory() / "subjects" / f"runtime-{hashlib.sha256(pins.encode()).hexdigest()[:12]}"


def tree_directory(release: str) -> Path:
    """The source tree of one release."""
    return cache_directory() / "subjects" / f"vllm-{release}"


def installed() -> tuple[str, ...]:
    """The complete releases, in the order of their numbers."""
    trees = (cache_directory() / "subjects").glob(f"vllm-*/{MANIFEST}")
    releases = [tree.parent.name.removeprefix("vllm-") for tree in trees]
    return tuple(sorted(releases, key=lambda release: [int(part) for part in re.findall(r"\d+", release)]))


def subject_of(release: str) -> Subject:
    """The installed subject of a release. Raises NotInstalled."""
    if release not in installed() or not _runtime_is_complete():
        have = ", ".join(installed()) or "none"
        raise NotInstalled(
            f"vLLM {release} is not installed (installed: {have}); run `hitbound subject install vllm=={release}`"
        )
    return Subject(_interpreter(), tree_directory(release))


def subject_of_source(directory: Path) -> Subject:
    """A checkout of vLLM as a subject. Raises NotInstalled."""
    if not (directory / "vllm" / "v1" / "core" / "sched" / "scheduler.py").is_file():
        raise NotInstalled(
            f"{directory}: no checkout of vLLM; name the folder that contains vllm/v1/core/sched/scheduler.py"
        )
    if not _runtime_is_complete():
        raise NotInstalled(
            f"the environment that runs subjects is not installed; run `hitbound subject install --source {directory}`"
        )
    return Subject(_interpreter(), directory.resolve())


def install_runtime(index: Index, say: Say, *, allow_large: bool) -> None:
    """Make the environment that runs subjects, unless it is complete; one that is not is gone on with."""
    directory = runtime_directory()
    if _runtime_is_complete():
        return
    _need_room(directory, ROOM_FOR_RUNTIME)
    python = str(_interpreter())
    if not _interpreter().exists():
        say("making an environment")
        _run((sys.executable, "-m", "venv", "--clear", str(directory)), say)
    if not allow_large:
        _refuse_large(python, index, say)
    # Bytecode of what a scheduler imports, a small part of all this, is compiled when it first starts.
    install = (python, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile", *index.arguments())
    for packages in ((TORCH,), (TORCH, *PACKAGES), ("--no-deps", *WITHOUT_DEPENDENCIES), BUILD):
        _run((*install, *packages), say)
    (directory / COMPLETE).touch()


def install_release(release: str, index: Index, say: Say) -> None:
    """Bring the source tree of a release, unless it is complete."""
    target = tree_directory(release)
    if (target / MANIFEST).is_file():
        return
    _need_room(target, ROOM_FOR_TREE)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        archive = _download(release, Path(scratch), index, say)
        say(f"unpacking {archive.name}")
        with tarfile.open(archive) as packed:
            packed.extractall(scratch, filter="data")
        tree = archive.with_name(archive.name.removesuffix(".tar.gz"))
        checksum = hashlib.sha256(archive.read_bytes()).hexdigest()
        manifest = {"release": release, "archive": archive.name, "sha256": checksum}
        (tree / MANIFEST).write_text(json.dumps(manifest) + "\n", encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        tree.rename(target)


def verify(subject: Subject, say: Say) -> str:
    """Start the subject once; the release that it says it is. Raises SubjectUnavailable."""
    say(f"starting {subject.tree.name}")
    with SubjectProcess(subject) as process:
        return process.release


def remove(release: str) -> None:
    """Delete the source tree of a release; with the last one, the environment. Raises NotInstalled."""
    if release not in installed():
        raise NotInstalled(f"vLLM {release} is not installed; `hitbound subject list` shows what is")
    shutil.rmtree(tree_directory(release))
    if not installed():
        for directory in (cache_directory() / "subjects").glob("runtime-*"):
            shutil.rmtree(directory)


def _interpreter() -> Path:
    return runtime_directory() / "bin" / "python"


def _runtime_is_complete() -> bool:
    return (runtime_directory() / COMPLETE).is_file()


def _need_room(target: Path, needed: int) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NoRoom(f"{target.parent}: {error.strerror}; name another folder with HITBOUND_CACHE") from None
    free = shutil.disk_usage(target.parent).free
    if free < needed:
        raise NoRoom(
            f"{target.parent}: {free >> 20} MB free, {needed >> 20} MB wanted; "
            "make room, or name another folder with HITBOUND_CACHE"
        )


def _refuse_large(python: str, index: Index, say: Say) -> None:
    """Ask what the index offers as torch before it is brought. A build with CUDA says so by what it requires."""
    say("looking at the builds of torch")
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = (python, "-m", "pip", "install", "--disable-pip-version-check", "--dry-run", "--no-deps", "--quiet")
        _run((*command, "--report", report.name, *index.arguments(), TORCH), say)
        offered = json.loads(Path(report.name).read_text(encoding="utf-8"))["install"]
    required = [line for found in offered for line in found["metadata"].get("requires_dist", ())]
    if sys.platform == "linux" and any(re.match(r"nvidia-|cuda-|triton", line) for line in required):
        raise LargeDownload(
            f"the package index offers {TORCH} only with CUDA, several GB: name an index of CPU builds with "
            "--extra-index-url or in the client's configuration, or allow it with --allow-large-download"
        )


def _download(release: str, directory: Path, index: Index, say: Say) -> Path:
    say(f"downloading the source of vLLM {release}")
    environment = {**BUILD_ENVIRONMENT, "VLLM_VERSION_OVERRIDE": release}
    options = ("--disable-pip-version-check", "--no-deps", "--no-binary", ":all:", "--no-build-isolation")
    wanted = (*index.arguments(), f"vllm=={release}", "-d", str(directory))
    _run((str(_interpreter()), "-m", "pip", "download", *options, *wanted), say, environment)
    archives = list(directory.glob("vllm-*.tar.gz"))
    if len(archives) != 1:
        raise InstallationFailed(f"the package client brought {[found.name for found in archives]} for vLLM {release}")
    return archives[0]


def _run(command: Sequence[str], say: Say, environment: dict[str, str] | None = None) -> None:
    """Run the package client, again after a pause while the index cannot be reached."""
    for pause in PAUSES:
        try:
            return _run_once(command, say, environment)
        except IndexUnreachable:
            say(f"the package index cannot be reached; again in {pause:.0f} s")
            time.sleep(pause)
    return _run_once(command, say, environment)


def _run_once(command: Sequence[str], say: Say, environment: dict[str, str] | None) -> None:
    """Run the package client; its lines are the progress, and its last ones the reason if it fails."""
    lines: list[str] = []
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**kept, **(environment or {})},
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            say(lines[-1][:100])
    if process.returncode:
        raise _failure("\n".join(lines))


_FAILURES: tuple[tuple[str, type[HitboundError], str], ...] = (
    (r"No space left on device", NoRoom, "make room, or name another folder with HITBOUND_CACHE"),
    (
        r"NewConnectionError|ConnectTimeout|ReadTimeout|Max retries|Temporary failure in name|IncompleteRead"
        r"|[Cc]onnection (refused|broken|reset)|ProxyError|Network is unreachable|(50[0234]|429) (Server|Client) Error",
        IndexUnreachable,
        "the package index cannot be reached; check the network, or name an index with --index-url",
    ),
    (
        r"No matching distribution found for vllm",
        NoSuchRelease,
        "the package index has no source distribution of that release",
    ),
)


def _failure(output: str) -> HitboundError:
    """What the output of the package client means, with its last lines."""
    tail = "\n".join(line for line in output.splitlines()[-12:] if line.strip())
    for pattern, kind, advice in _FAILURES:
        if re.search(pattern, output):
            return kind(f"{advice}\n{tail}")
    return InstallationFailed(f"the package client failed:\n{tail}")
