"""What `--policy` takes, and what it says about a file that it cannot use: where, what is wrong, what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from hitbound.policy_loading import FUNCTIONS, LIST_SHAPED, load_policy
from model.errors import PolicyError
from model.policies import POLICIES
from model.policy import Policy

HEAD = "from model.policies.vllm import Vllm028\nfrom model.policy import NOTHING\n"


def written(folder: Path, text: str) -> Path:
    file = folder / "mine.py"
    file.write_text(text, encoding="utf-8")
    return file


def refusal(asked: str) -> str:
    with pytest.raises(PolicyError) as refused:
        load_policy(asked)
    return str(refused.value)


@pytest.mark.parametrize("name", POLICIES)
def test_shipped_policies_go_by_name(name: str) -> None:
    assert load_policy(name) is POLICIES[name]


@pytest.mark.parametrize("asked", ["vllm-9.9", "mine.py", "mine:Mine", ""])
def test_what_is_no_policy_is_told_what_is(asked: str) -> None:
    assert "vllm-0.32, vllm-0.33, reference" in refusal(asked)
    assert "latest, or FILE.py:NAME" in refusal(asked)


def test_a_class_and_an_instance(tmp_path: Path) -> None:
    file = written(tmp_path, HEAD + "class Mine(Vllm028):\n    pass\nmine = Mine()\n")
    assert load_policy(f"{file}:Mine").name == f"{file}:Mine"
    assert load_policy(f"{file}:mine").name == f"{file}:mine"


def test_a_name_of_its_own_is_kept_but_never_that_of_a_shipped_policy(tmp_path: Path) -> None:
    file = written(tmp_path, HEAD + "class A(Vllm028):\n    name = 'ours'\nclass B(Vllm028):\n    name = 'reference'\n")
    assert load_policy(f"{file}:A").name == "ours"
    assert load_policy(f"{file}:B").name == f"{file}:B"


def test_a_shipped_instance_in_a_file_stays_what_it_was(tmp_path: Path) -> None:
    file = written(tmp_path, "from model.policies import POLICIES\nsame = POLICIES['reference']\n")
    assert load_policy(f"{file}:same").name == f"{file}:same"
    assert POLICIES["reference"].name == "reference"


def test_an_edited_file_is_read_again(tmp_path: Path) -> None:
    file = written(tmp_path, HEAD + "class Mine(Vllm028):\n    def cap(self, N): return N - 1\n")
    assert load_policy(f"{file}:Mine").cap(5) == 4
    written(tmp_path, HEAD + "class Mine(Vllm028):\n    def cap(self, N): return N - 2\n")
    assert load_policy(f"{file}:Mine").cap(5) == 3


def test_a_neighbouring_module_can_be_imported_but_cannot_shadow_ours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_mine.py").write_text("less = 1\n", encoding="utf-8")
    (tmp_path / "model.py").write_text("raise SystemExit\n", encoding="utf-8")
    text = "import neighbour_of_mine\n" + HEAD + "class Mine(Vllm028):\n    pass\n"
    load_policy(f"{written(tmp_path, text)}:Mine")


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("x = (\n", 1, "was never closed"),
        ("\nimport no_such_module\n", 2, "ModuleNotFoundError"),
        ("def f():\n    return 1 / 0\nf()\n", 2, "ZeroDivisionError"),
        ("import sys\n\nsys.exit(0)\n", 3, "SystemExit"),
        (HEAD + "class Mine(Vllm028):\n    def __init__(self): raise ValueError('no')\n", 4, "ValueError: no"),
        (HEAD + "class Mine(Vllm028):\n    def ask(self, L): return L\n", 4, "ask(L, summary)"),
        (HEAD + "class Mine(Vllm028):\n    ask = 3\n", 3, "`ask` is a int"),
        (HEAD + "class Mine(Vllm028):\n    choose_start = 0\n", 3, "choose_start"),
        (HEAD + "def Mine(): pass\n", 3, "is a function"),
        (HEAD + "class Mine: pass\n", 3, "lacks `cap(N)`"),
    ],
)
def test_a_faulty_file_is_refused_with_its_line(tmp_path: Path, text: str, line: int, what: str) -> None:
    file = written(tmp_path, text)
    message = refusal(f"{file}:Mine")
    assert message.startswith(f"{file}:{line}: ")
    assert what in message


def test_a_missing_file_and_a_missing_name(tmp_path: Path) -> None:
    assert "No such file" in refusal(f"{tmp_path / 'none.py'}:Mine")
    file = written(tmp_path, HEAD + "class Ours(Vllm028): pass\n")
    assert refusal(f"{file}:Mine") == f"{file}: there is no `Mine` in this file; it has Ours"


@pytest.mark.parametrize("part", [*FUNCTIONS, "claim_start", "choose_start"])
def test_each_missing_part_is_named(tmp_path: Path, part: str) -> None:
    parts = {name: f"    {name} = staticmethod(lambda *a: None)" for name in FUNCTIONS}
    parts |= {"claim_start": "    claim_start = None", "choose_start": "    choose_start = NOTHING"}
    del parts[part]
    file = written(tmp_path, HEAD + "class Mine:\n" + "\n".join(parts.values()) + "\n")
    assert f"`{part}" in refusal(f"{file}:Mine")


@pytest.mark.parametrize("part", LIST_SHAPED)
def test_a_part_over_a_list_stands_in_for_the_fold(tmp_path: Path, part: str) -> None:
    (parameter,), fold = LIST_SHAPED[part]
    kept = [name for name in FUNCTIONS if name not in fold]
    body = [f"    {name} = staticmethod(lambda *a: None)" for name in kept]
    body += [f"    {name} = NOTHING" for name in ("claim_start", "choose_start") if name not in fold]
    file = written(
        tmp_path, HEAD + "class Mine:\n" + "\n".join([*body, f"    def {part}(self, {parameter}): ..."]) + "\n"
    )
    load_policy(f"{file}:Mine")
    file = written(tmp_path, HEAD + "class Mine:\n" + "\n".join([*body, f"    def {part}(self): ..."]) + "\n")
    assert f"{part}({parameter})" in refusal(f"{file}:Mine")


def test_the_parts_are_those_of_the_protocol() -> None:
    assert set(FUNCTIONS) == {
        part for part in dir(Policy) if not part.startswith("_") and callable(getattr(Policy, part))
    }
