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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow ones first, so that no core waits for the last of them."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
