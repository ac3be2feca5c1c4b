"""Real vLLM releases for tests: those that `hitbound subject install` has brought, HITBOUND_CACHE says where."""

from __future__ import annotations

import os

import pytest

from subjects import installation
from subjects.process import Subject

REQUIRED = ("0.27.1", "0.33.0")
"""`.ci/run` installs these."""

RELEASES = tuple(sorted({*installation.installed(), *REQUIRED}))


def installed_subject(release: str) -> Subject:
    """The subject of a release. Where it is not installed the test is skipped, and fails in CI."""
    try:
        return installation.subject_of(release)
    except installation.NotInstalled as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip("no subject")
