"""`hitbound subject`: which vLLM releases are installed to be tested for real."""

from __future__ import annotations

import re
import time
from pathlib import Path

import click

from hitbound import exit_codes
from hitbound.progress import Say, progress
from model.errors import HitboundError
from subjects import installation
from subjects.process import Subject

FILE = click.Path(path_type=Path)


class NoSubjectNamed(HitboundError):
    """`subject install` without a release and without a checkout, or with both."""


class ReleaseNotRead(HitboundError):
    """A release that is not written as `vllm==X` or as X."""


def release_of(text: str) -> str:
    """The release that `vllm==0.33.0` or `0.33.0` names. Raises ReleaseNotRead."""
    found = re.fullmatch(r"(?:vllm==)?(\d+(?:\.\w+)+)", text)
    if not found:
        raise ReleaseNotRead(f"{text!r} names no release; write it as vllm==0.33.0")
    return found[1]


@click.group()
def subject() -> None:
    """Install, list and remove the vLLM releases that `hitbound conform` runs."""


@subject.command(epilog=exit_codes.help_text())
@click.argument("releases", metavar="RELEASE", nargs=-1)
@click.option("--source", type=FILE, metavar="DIR", help="A checkout of vLLM: install only what is needed to run it.")
@click.option("--index-url", metavar="URL", help="Passed on to the package client, whose own configuration counts too.")
@click.option("--extra-index-url", metavar="URL", help="The same; for example an index of CPU builds of torch.")
@click.option("--allow-large-download", is_flag=True, help="Allow a torch with CUDA, which is several GB.")
def install(
    releases: tuple[str, ...],
    source: Path | None,
    index_url: str | None,
    extra_index_url: str | None,
    allow_large_download: bool,
) -> int:
    """Install vLLM releases (vllm==0.33.0), or what runs the checkout given with --source."""
    if (not releases) == (source is None):
        raise NoSubjectNamed("name a release (or several), as in vllm==0.33.0, or a checkout with --source DIR")
    wanted = [release_of(release) for release in releases]
    index = installation.Index(index_url, extra_index_url)
    with progress() as say:
        began = time.monotonic()
        installation.install_runtime(index, say, allow_large=allow_large_download)
        _tell("the environment of all subjects is complete", began, installation.runtime_directory())
        if source is not None:
            _verify(installation.subject_of_source(source), say)
        for release in wanted:
            began = time.monotonic()
            installation.install_release(release, index, say)
            _tell(f"the source of vLLM {release} is complete", began, installation.tree_directory(release))
            _verify(installation.subject_of(release), say)
    return exit_codes.ExitCode.REACHED


def _verify(subject: Subject, say: Say) -> None:
    """Start the subject once: what it needs is there, and its bytecode is compiled for the next start."""
    began = time.monotonic()
    release = installation.verify(subject, say)
    click.echo(f"vLLM {release} starts: {time.monotonic() - began:.0f} s, {subject.tree}")


def _tell(what: str, began: float, directory: Path) -> None:
    size = sum(file.lstat().st_size for file in directory.rglob("*") if file.is_file())
    click.echo(f"{what}: {time.monotonic() - began:.0f} s, {size >> 20} MB, {directory}")


@subject.command(name="list")
def list_subjects() -> int:
    """List the installed releases, one a line."""
    for release in installation.installed():
        click.echo(f"vllm=={release}")
    return exit_codes.ExitCode.REACHED


@subject.command()
@click.argument("release")
def remove(release: str) -> int:
    """Delete the release RELEASE; with the last one also what runs them."""
    installation.remove(release_of(release))
    return exit_codes.ExitCode.REACHED
