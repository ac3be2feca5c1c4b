"""`hitbound conform --connector`: what a user can do wrong, and what blocks hold as numbers in a KV cache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hitbound.connector_command import ConnectorConfigurationError, NoConnector, named_connector
from hitbound.exit_codes import ExitCode
from model.configuration import Configuration, Group, GroupKind
from model.connector import Contract, Leaf
from model.memory import UNWRITTEN, AttentionKV, RecurrentState, empty_memory
from model.plan import Load
from subjects.connector_engine import Clause, Numbers, due, lacking
from tests.command_line import run_in

GROUPS = (Group(GroupKind.FULL_ATTENTION, 2), Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.MAMBA, 2))
PREFIX = ("a", "b", "c", "d", "e", "f", "g", "h", "i")


def load(*, start: int, end: int, local: tuple[int, ...], backed: bool) -> Load:
    tables = ((1, 2, 3, 4, 5), (6, 7, 8), (0, 0, 0, 9, 0))
    leaf = Leaf("connector", claims=True, contract=Contract.FULL)
    return Load("r", leaf, PREFIX, start, end, tables, local, backed, asynchronous=True)


def test_a_load_has_to_bring_what_the_strongest_contract_says() -> None:
    configuration = Configuration(GROUPS, pool_blocks=10, budget=8)
    lagging = list(due(configuration, load(start=4, end=8, local=(4, 0, 0), backed=False)))
    assert (Clause.FULL, 1, 0, AttentionKV(1, 0, PREFIX[:4])) in lagging
    assert (Clause.EXACT, 0, 2, AttentionKV(0, 4, PREFIX[:6])) in lagging
    assert (Clause.ENDPOINT, 2, 3, RecurrentState(2, PREFIX[:8])) in lagging
    backed = {clause for clause, *_ in due(configuration, load(start=4, end=8, local=(4, 4, 4), backed=True))}
    assert backed == {Clause.EXACT, Clause.BACKED}


def test_what_a_load_lacks_is_named_once_for_each_clause() -> None:
    configuration = Configuration(GROUPS, pool_blocks=10, budget=8)
    announced = load(start=4, end=8, local=(4, 0, 0), backed=False)
    memory = empty_memory(10)
    assert [lack.clause for lack in lacking(configuration, announced, memory)] == [
        Clause.EXACT,
        Clause.FULL,
        Clause.ENDPOINT,
    ]
    for _, group, column, needed in due(configuration, announced):
        memory = memory.write(announced.tables[group][column], needed)
    assert not list(lacking(configuration, announced, memory))
    wrong = memory.write(9, RecurrentState(2, PREFIX[:6]))
    assert "holds a state after 6 tokens" in next(iter(lacking(configuration, announced, wrong))).message


def test_what_is_written_is_read_back_and_a_mixture_is_not_taken_for_content() -> None:
    numbers = Numbers(GROUPS)
    empty = empty_memory(4)
    written = empty.replace(1, AttentionKV(1, 5, PREFIX[:7])).replace(2, RecurrentState(2, PREFIX[:3]))
    told = numbers.written(empty, written)
    assert [(block, group) for block, group, _ in told] == [(1, 1), (2, 2)]
    assert numbers.read(empty, told) == written
    (_, _, slots), _ = told
    assert slots[0] == slots[3] == 0
    mixed = numbers.read(empty, [(3, 1, [0, slots[2], slots[1], 0])]).read(3)
    assert mixed != written.read(1)
    assert numbers.read(written, [(1, 1, [0, 0, 0, 0])]).read(1) == UNWRITTEN
    assert numbers.read(empty, [(3, 2, [999])]).read(3) != UNWRITTEN


def test_a_connector_is_named_by_module_and_class() -> None:
    tested = named_connector("package.module:Class", None)
    assert (tested.module, tested.name, tested.role) == ("package.module", "Class", "kv_both")
    assert tested.path == (str(Path.cwd()),)
    for named in ("module", "module:", ":Class", "path/to/file.py:Class", "a:b:c"):
        with pytest.raises(NoConnector, match="MODULE:CLASS"):
            named_connector(named, None)


def test_a_configuration_says_where_the_module_is(tmp_path: Path) -> None:
    file = tmp_path / "connector.json"
    file.write_text(json.dumps({"kv_connector_extra_config": {"size": 3}, "kv_role": "kv_consumer", "path": ["lib"]}))
    tested = named_connector("module:Class", file)
    assert tested.extra == {"size": 3}
    assert tested.role == "kv_consumer"
    assert tested.path[0] == str(tmp_path / "lib")


@pytest.mark.parametrize(
    ("text", "telling"),
    [
        ("{", "not JSON"),
        ("[]", "expected an object, got a list"),
        ('{"kv_connector_extra": {}}', 'unknown key "kv_connector_extra"'),
        ('{"kv_transfer_params": 3}', "kv_transfer_params: expected an object, got an integer"),
        ('{"path": "lib"}', "path: expected a list, got a string"),
        ('{"path": [3]}', r"path\[0\]: expected a string, got an integer"),
        ('{"kv_role": "both"}', "expected one of kv_both, kv_consumer, kv_producer"),
        ('{"kv_role": "kv_both", "kv_role": "kv_consumer"}', "occurs twice"),
    ],
)
def test_a_configuration_that_cannot_be_used_says_why(tmp_path: Path, text: str, telling: str) -> None:
    file = tmp_path / "connector.json"
    file.write_text(text)
    with pytest.raises(ConnectorConfigurationError, match=telling):
        named_connector("module:Class", file)
    with pytest.raises(ConnectorConfigurationError, match="No such file"):
        named_connector("module:Class", tmp_path / "missing.json")


def test_the_command_says_it_without_a_traceback(tmp_path: Path) -> None:
    for options, telling in (
        (("--connector", "module"), "MODULE:CLASS"),
        (("--config", "x.json"), "name it with --connector"),
        (("--connector", "module:Class", "--config", str(tmp_path / "no.json")), "No such file"),
    ):
        done = run_in(tmp_path, "conform", "--subject", "vllm==0.33.0", *options)
        assert done.code == ExitCode.USAGE
        assert telling in done.err
        assert "Traceback" not in done.err
