"""A stopped search in a file, to go on from later with the same scope, policy and model."""

from __future__ import annotations

import hashlib
import inspect
import pickle
import zlib
from pathlib import Path

import model
import properties
import solver
from model.errors import HitboundError
from model.policy import Policy
from solver.search import Reached, Search

FORMAT = b"hitbound-checkpoint/1\n"


class CheckpointError(HitboundError):
    """A checkpoint that cannot be used: of another search, damaged, or not to be written."""


def write_checkpoint(search: Search, policy: Policy, path: Path) -> None:
    """Write the search to `path`, whole or not at all. Raises CheckpointError."""
    body = zlib.compress(pickle.dumps((search.codec.records, search.codec.symbols, search.reached)), 1)
    header = FORMAT + _identity(search, policy) + hashlib.sha256(body).hexdigest().encode() + b"\n"
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_bytes(header + body)
        partial.replace(path)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}; choose a file that can be written") from None


def read_checkpoint(search: Search, policy: Policy, path: Path) -> None:
    """Let `search` go on from `path`. The body is unpickled only if the header names this search and the body's
    digest; still, use only checkpoints of your own. Raises CheckpointError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None
    if not content.startswith(FORMAT):
        raise CheckpointError(f"{path}: this is no checkpoint of this version; choose another file")
    expected, rest = _identity(search, policy), content[len(FORMAT) :]
    if not rest.startswith(expected):
        raise CheckpointError(f"{path}: written for another scope, policy or version of hitbound; choose another file")
    digest, _, body = rest[len(expected) :].partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise CheckpointError(f"{path}: damaged; remove it and search from the start")
    records, symbols, reached = pickle.loads(zlib.decompress(body))
    for record in records:
        search.codec.record(record)
    for symbol in symbols:
        search.codec.symbol(symbol)
    assert isinstance(reached, Reached)
    search.reached = reached


def _identity(search: Search, policy: Policy) -> bytes:
    """One line that differs if the scope, the policy's text, or the text of the model or of the search does."""
    digest = hashlib.sha256(repr((search.scope, policy.name, search.codec.sort_blocks, bool(search.sorter))).encode())
    try:
        digest.update(Path(inspect.getfile(type(policy))).read_bytes())
    except (OSError, TypeError):
        digest.update(repr(policy).encode())
    for package in (model, properties, solver):
        for file in sorted(Path(package.__path__[0]).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest().encode() + b"\n"
