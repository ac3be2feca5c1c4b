"""`--changed-since`: which functions of a policy differ from a revision, and what they decide."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hitbound.changes import Change, RevisionError, changes_since
from hitbound.policy_loading import load_policy

POLICY = '''"""A policy."""

from model.policies.vllm import Vllm028


def smaller(L, E):
    return L, E


class Mine(Vllm028):
    """Mine."""

    name = "mine"

    def settle(self, L, diverged, asked, E, summary, N):
        """Settle."""
        if E > L - asked:
            return smaller(asked, E)
        return summary.common, 0

    def cap(self, N):
        return N - 1
'''


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.py").write_text(POLICY, encoding="utf-8")
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *arguments], check=True)
    return tmp_path


def changed(repository: Path, old: str, new: str) -> tuple[Change, ...]:
    assert old in POLICY
    (repository / "policy.py").write_text(POLICY.replace(old, new), encoding="utf-8")
    return changes_since("HEAD", [load_policy("policy.py:Mine")])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return N - 1", "return N - 1  # the last token is always run"),
        ('"""Settle."""', '"""Settle an admission."""'),
        ('"""Mine."""', '"""My own."""'),
        ("        return summary.common, 0", "\n        return (summary.common, 0)"),
    ],
)
def test_comments_layout_and_docstrings_are_no_change(repository: Path, old: str, new: str) -> None:
    assert changed(repository, old, new) == ()


def test_a_changed_part_is_named_with_what_it_decides(repository: Path) -> None:
    (change,) = changed(repository, "return N - 1", "return N")
    assert change == Change("mine", "policy.py", 21, "Mine.cap", ("cap",), ("HIT-LAST",))


def test_a_changed_helper_counts_for_the_parts_that_call_it(repository: Path) -> None:
    (change,) = changed(repository, "    return L, E", "    return L, 0")
    assert (change.function, change.line, change.parts) == ("smaller", 6, ("settle",))
    assert "HIT-RESUME" in change.properties


def test_a_part_that_is_new_or_gone_is_a_change(repository: Path) -> None:
    (gone,) = changed(repository, "    def cap(self, N):\n        return N - 1\n", "")
    assert (gone.function, gone.parts) == ("Mine.cap (removed)", ("cap",))
    (new,) = changed(repository, "    def cap", "    def ask(self, L, summary):\n        return L\n\n    def cap")
    assert (new.function, new.parts) == ("Mine.ask", ("ask",))


@pytest.mark.parametrize(
    ("old", "new"), [('name = "mine"', 'name = "mine2"'), ("class Mine(Vllm028)", "class Mine(Vllm028, object)")]
)
def test_what_is_no_function_counts_for_every_part(repository: Path, old: str, new: str) -> None:
    (change,) = changed(repository, old, new)
    assert {"cap", "settle", "claim_step"} <= set(change.parts)


def test_a_changed_helper_in_a_module_beside_counts_too(repository: Path) -> None:
    (repository / "beside.py").write_text("def smaller(L, E):\n    return L, 0\n", encoding="utf-8")
    own = "def smaller(L, E):\n    return L, E\n"
    assert own in POLICY
    (repository / "policy.py").write_text(POLICY.replace(own, "from beside import smaller\n"), encoding="utf-8")
    found = {
        (change.file, change.function): change.parts
        for change in changes_since("HEAD", [load_policy("policy.py:Mine")])
    }
    assert found["beside.py", "smaller"] == ("settle",)


def test_an_unknown_revision_is_refused(repository: Path) -> None:
    with pytest.raises(RevisionError, match="fetch-depth"):
        changes_since("no-such-branch", [load_policy("policy.py:Mine")])


def test_a_file_that_is_new_is_changed_as_a_whole(repository: Path) -> None:
    (repository / "other.py").write_text(POLICY, encoding="utf-8")
    functions = [change.function for change in changes_since("HEAD", [load_policy("other.py:Mine")])]
    assert {"smaller", "Mine.settle", "Mine.cap"} <= set(functions)
