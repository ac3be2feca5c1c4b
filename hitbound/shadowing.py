"""hitbound's import packages have generic names; another `model` on the path must not be taken for ours."""

from __future__ import annotations

import importlib.util
from pathlib import Path

PACKAGES = ("model", "properties", "solver", "subjects")


def shadowed_package() -> str:
    """Why hitbound must not start, or nothing: a package of ours that Python would import from somewhere else."""
    home = Path(__file__).resolve().parents[1]
    for name in PACKAGES:
        origin = _origin(name)
        if origin is None or not Path(origin).resolve().is_relative_to(home / name):
            return (
                f"the package `{name}` that Python finds is not hitbound's: {origin or 'there is none'} "
                f"instead of {home / name}. hitbound needs an environment of its own: install it with "
                "`pipx install hitbound`, or run it with `uvx hitbound`, and clear PYTHONPATH."
            )
    return ""


def _origin(name: str) -> str | None:
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:
        return None
    return spec.origin if spec else None
