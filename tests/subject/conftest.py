"""Fixtures of the tests that run a real vLLM."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from subjects.process import SubjectProcess
from tests.installed import RELEASES, installed_subject


@pytest.fixture(scope="session", params=RELEASES)
def process(request: pytest.FixtureRequest) -> Iterator[SubjectProcess]:
    """A running driver of each release, one at a time; tests choose releases by indirect parameters."""
    with SubjectProcess(installed_subject(request.param)) as running:
        yield running
