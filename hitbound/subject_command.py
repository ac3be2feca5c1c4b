"""`hitbound subject`: which vLLM releases are installed to be tested for real."""

from __future__ import annotations

import re
from pathlib import Path

import click

from hitbound import exit_codes
from hitbound.progress import progress
from model.errors import HitboundError
from subjects import installation

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
@click.argument("release", required=False)
@click.option("--source", type=FILE, metavar="DIR", help="A checkout of vLLM: install only what is needed to run it.")
@click.option("--index-url", metavar="URL", help="Passed on to the package client, whose own configuration counts too.")
@click.option("--extra-index-url", metavar="URL", help="The same; for example an index of CPU builds of torch.")
@click.option("--allow-large-download", is_flag=True, help="Allow a torch with CUDA, which is several GB.")
def install(
    release: str | None,
    source: Path | None,
    index_url: str | None,
    extra_index_url: str | None,
    allow_large_download: bool,
) -> int:
    """Install the vLLM release RELEASE (vllm==0.33.0), or what runs the checkout given with --source."""
    if (release is None) == (source is None):
        raise NoSubjectNamed("name a release, as in vllm==0.33.0, or a checkout with --source DIR")
    wanted = release_of(release) if release else ""
    index = installation.Index(index_url, extra_index_url)
    with progress() as say:
        installation.install_runtime(index, say, allow_large=allow_large_download)
        if source is not None:
            installation.verify(installation.subject_of_source(source), say)
        else:
            installation.install_release(wanted, index, say)
            installation.verify(installation.subject_of(wanted), say)
    where = source if source is not None else installation.tree_directory(wanted)
    click.echo(f"vLLM {wanted or 'checkout'} starts: {where}")
    return exit_codes.ExitCode.REACHED


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
