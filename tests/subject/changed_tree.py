"""A source tree of vLLM with one text replaced; all else is linked."""

from __future__ import annotations

from pathlib import Path

import attrs

from subjects.process import Subject


def changed(subject: Subject, directory: Path, file: str, old: str, new: str) -> Subject:
    """The subject with `old`, which stands once in `file`, replaced by `new`."""
    path = Path("vllm/v1/core") / file
    for parent in reversed(path.parents):
        (directory / parent).mkdir(exist_ok=True)
        for entry in (subject.tree / parent).iterdir():
            if entry.name not in path.parts:
                (directory / parent / entry.name).symlink_to(entry)
    text = (subject.tree / path).read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path}"
    (directory / path).write_text(text.replace(old, new), encoding="utf-8")
    return attrs.evolve(subject, tree=directory)
