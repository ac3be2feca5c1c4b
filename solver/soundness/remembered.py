"""Remembers what was found about cache soundness: it does not depend on the policy, and takes longer than one.

The finding is kept in the user's cache directory under a name that is a digest of everything it was made from: the
sources of the encoding and of the deciding, and the versions of the solvers. Whatever differs is decided anew.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from properties.verdict import Verdict
from solver.finding import Finding
from solver.soundness.proof import examine_soundness

_SOLVER = Path(__file__).parents[1]
SOURCES = ("arithmetic.py", "decide.py", "finding.py", "laws.py", "obligation.py", "per_formula.py", "soundness/*.py")
"""What the finding depends on, in the folder of the engines."""


def remembered_soundness(progress: Callable[[str], None] = lambda _: None) -> Finding:
    """All of the matrix and its interfaces as one finding, decided if it was not before."""
    return _remembered(_directory() / f"soundness-{_digest()}.json", progress)


@functools.cache
def _remembered(file: Path, progress: Callable[[str], None]) -> Finding:
    found = _read(file)
    if found is None:
        found = examine_soundness(progress=progress).finding
        if found.proved:
            _write(file, found)
    return found


def _directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hitbound"


def _digest() -> str:
    digest = hashlib.sha256()
    for pattern in SOURCES:
        for path in sorted(_SOLVER.glob(pattern)):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    for distribution in ("z3-solver", "cvc5"):
        digest.update(_version(distribution).encode())
    return digest.hexdigest()


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "none"


def _read(file: Path) -> Finding | None:
    """What was remembered; only proofs are, so that a failure is always looked at again."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        solvers, obligations = tuple(document["solvers"]), int(document["obligations"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Finding(Verdict.PROVED, solvers=solvers, obligations=obligations)


def _write(file: Path, finding: Finding) -> None:
    """Where it cannot be written, it is decided again next time."""
    temporary = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps({"solvers": finding.solvers, "obligations": finding.obligations}))
        temporary.replace(file)
    except OSError:
        return
