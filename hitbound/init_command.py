"""`hitbound init`: a commented configuration of the gate and a policy that passes it."""

from __future__ import annotations

from pathlib import Path

from hitbound.gate_configuration import OWN_FILE
from model.errors import HitboundError
from properties.strict_json import write_text

TEMPLATES = Path(__file__).with_name("templates")
FILES = (OWN_FILE, "policy.py")


class InitError(HitboundError):
    """A file that exists already, or a directory that cannot be written to."""


def init(directory: Path) -> tuple[Path, ...]:
    """Write the files; all of them or, where one exists already, none. Raises InitError."""
    paths = tuple(directory / name for name in FILES)
    existing = [str(path) for path in paths if path.exists()]
    if existing:
        raise InitError(f"{', '.join(existing)} exists already and is left as it is; move it away, or init elsewhere")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path in paths:
            write_text((TEMPLATES / f"{path.name}.template").read_text(encoding="utf-8"), path)
    except OSError as error:
        raise InitError(f"{directory}: {error.strerror}; name a directory that can be written to") from None
    return paths
