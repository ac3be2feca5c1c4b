"""Fixtures that several tests share."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.command_line import Hitbound, run_in


@pytest.fixture
def hitbound(tmp_path: Path) -> Hitbound:
    """Run the command in an empty directory."""
    return functools.partial(run_in, tmp_path)
