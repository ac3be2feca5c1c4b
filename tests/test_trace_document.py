"""Traces as JSON: nothing is lost, nothing wrong is accepted, and the published schema says the same as the reader."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.actions import (
    Abort,
    Action,
    Arrive,
    Drain,
    EndLoad,
    EndSaves,
    Evict,
    EvictObject,
    LeafAnswers,
    Preempt,
    Reset,
    ScriptedAnswer,
    Step,
)
from model.configuration import Configuration, Eviction, Group, GroupKind, WorkerOrder
from model.connector import Composite, Conduct, Connector, Contract, Leaf, StateRestored
from model.peer import PeerRules
from model.store_rules import StoreRules
from model.tokens import Segment
from model.trace import Expectation, ExpectedAdmission, Trace
from properties import strict_json
from properties.trace_document import (
    SCHEMA_FILE,
    TraceDocumentError,
    dump_trace,
    load_trace,
    read_trace,
    trace_from_document,
    trace_to_document,
    write_trace,
)

SCHEMA = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

NAMES = st.text(min_size=1, max_size=6)
SEGMENTS = st.lists(st.builds(Segment, NAMES, st.integers(0, 99)), max_size=3).map(tuple)
CONDUCTS = st.builds(
    Conduct,
    st.sampled_from(StateRestored),
    st.booleans(),
    st.lists(st.integers(0, 3), max_size=2).map(tuple),
    st.booleans(),
    st.booleans(),
)


STORE_RULES = st.builds(
    StoreRules,
    **{name: st.from_type(kind) for name, kind in get_type_hints(StoreRules).items()}
    | {"object_blocks": st.integers(1, 9)},
)
PEER_RULES = st.from_type(PeerRules)


@st.composite
def connectors(draw: st.DrawFn, depth: int = 2) -> Connector:
    if depth and draw(st.booleans()):
        return Composite(tuple(draw(st.lists(connectors(depth - 1), max_size=3))))
    name = f"leaf{draw(st.uuids())}"
    claims, contract = draw(st.booleans()), draw(st.sampled_from(Contract))
    if draw(st.booleans()):
        if draw(st.booleans()):
            return Leaf(name, claims, contract, peer=draw(PEER_RULES))
        return Leaf(name, claims, contract, store=draw(STORE_RULES))
    return Leaf(name, claims, contract, draw(CONDUCTS)) if draw(st.booleans()) else Leaf(name, claims, contract)


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    unit = draw(st.integers(1, 4))
    groups = [Group(GroupKind.FULL_ATTENTION, unit * draw(st.integers(1, 3)))]
    groups += draw(st.lists(st.just(Group(GroupKind.MAMBA, unit)), max_size=2))
    groups += draw(st.lists(st.just(Group(GroupKind.SLIDING_WINDOW, unit, 3 * unit)), max_size=1))
    return Configuration(
        groups=tuple(groups),
        pool_blocks=draw(st.integers(2, 99)),
        budget=draw(st.integers(1, 99)),
        connector=draw(st.none() | connectors()),
        eviction=draw(st.sampled_from(Eviction)),
        worker_order=draw(st.sampled_from(WorkerOrder)),
        hash_block=unit,
    )


ANSWERS = st.builds(
    LeafAnswers,
    NAMES,
    st.lists(st.builds(ScriptedAnswer, st.none() | st.integers(), st.booleans()), max_size=3).map(tuple),
)
BUDGETS = st.none() | st.integers(1, 99)
ACTIONS: st.SearchStrategy[Action] = st.one_of(
    st.builds(Arrive, NAMES, SEGMENTS, SEGMENTS, st.lists(ANSWERS, max_size=2).map(tuple)),
    st.builds(Step, st.lists(NAMES, max_size=2).map(tuple), BUDGETS),
    st.builds(Drain, BUDGETS),
    st.builds(Evict, st.integers(0, 3), NAMES, st.integers(0, 99)),
    st.builds(EvictObject, NAMES, st.integers(0, 3), NAMES, st.integers(0, 99)),
    st.builds(EndLoad, NAMES, st.booleans()),
    st.builds(EndSaves, NAMES),
    st.builds(Abort, NAMES),
    st.just(Preempt()),
    st.just(Reset()),
)
EXPECTATIONS = st.builds(
    Expectation,
    NAMES,
    st.lists(st.builds(ExpectedAdmission, NAMES, st.integers(0, 99), st.integers(0, 99)), max_size=2).map(tuple),
    st.lists(NAMES, max_size=2).map(tuple),
)
TRACES = st.builds(
    Trace,
    st.text(max_size=20),
    configurations(),
    st.lists(ACTIONS, max_size=6).map(tuple),
    st.lists(EXPECTATIONS, max_size=2).map(tuple),
    st.text(max_size=20),
)

EXAMPLE = Trace(
    title="an example",
    configuration=Configuration(
        groups=(Group(GroupKind.FULL_ATTENTION, 16), Group(GroupKind.MAMBA, 16)),
        pool_blocks=64,
        budget=8192,
        connector=Composite((Leaf("a", True, Contract.ENDPOINT), Composite((Leaf("b", False, Contract.BACKED),)))),
    ),
    actions=(
        Arrive("A", (Segment("x", 64),), (Segment("o", 1),), (LeafAnswers("a", (ScriptedAnswer(16),)),)),
        Drain(),
        Evict(1, "A", 32),
        EndLoad("A", succeeded=False),
    ),
    expectations=(Expectation("vllm-0.28", (ExpectedAdmission("A", 16, 0),), ("HIT-RESUME",)),),
)


@given(TRACES)
def test_a_trace_survives_its_document(trace: Trace) -> None:
    assert load_trace(dump_trace(trace)) == trace


@given(TRACES)
def test_the_schema_accepts_what_is_written(trace: Trace) -> None:
    VALIDATOR.validate(trace_to_document(trace))


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def _changed(change: Callable[[Any], object]) -> Any:
    document = json.loads(dump_trace(EXAMPLE))
    change(document)
    return document


@pytest.mark.parametrize(
    ("change", "place", "advice"),
    [
        (lambda d: d.update(extra=1), "$:", 'unknown key "extra"'),
        (lambda d: d.pop("title"), "$.title:", "missing"),
        (lambda d: d.update(actions={}), "$.actions:", "expected a list, got an object"),
        (lambda d: d.update(configuration=None), "$.configuration:", "expected an object, got null"),
        (lambda d: d["actions"].append("step"), "$.actions[4]:", "expected an action"),
        (lambda d: d["actions"].append({"do": "evct"}), "$.actions[4]:", "expected one of arrive"),
        (lambda d: d["actions"].append({"do": ["step"]}), "$.actions[4]:", "expected one of arrive"),
        (lambda d: d["actions"][0].update(request=3), "$.actions[0].request:", "expected a string, got an integer"),
        (lambda d: d["actions"][0].update(prompt=["x*64"]), "$.actions[0].prompt[0]:", '["x", 64]'),
        (lambda d: d["actions"][0].update(prompt=[["x", True]]), "$.actions[0].prompt[0]:", '["x", 64]'),
        (lambda d: d["actions"][2].update(boundary=32.0), "$.actions[2].boundary:", "got a fraction"),
        (lambda d: d["actions"][3].update(succeeded=0), "$.actions[3].succeeded:", "expected a boolean"),
        (lambda d: d["configuration"].update(budget=0), "$.configuration:", "budget of 0"),
        (lambda d: d["configuration"].update(connector=[]), "$.configuration.connector:", "a leaf or a composite"),
        (lambda d: d["configuration"].update(hash_block=5), "$.configuration:", "does not divide"),
        (lambda d: d["configuration"]["groups"][0].update(kind="full"), "$.configuration.groups[0].kind:", "mamba"),
        (
            lambda d: d["configuration"]["connector"]["children"][1]["children"][0].update(contract=1),
            "$.configuration.connector.children[1].children[0].contract:",
            "expected one of backed, endpoint, full",
        ),
        (lambda d: d.update(schema="hitbound-trace/2"), "$.schema:", "upgrade hitbound"),
        (lambda d: d.update(schema="something"), "$.schema:", "is this a trace document?"),
        (lambda d: d.pop("schema"), "$.schema:", "is this a trace document?"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(change: Callable[[Any], object], place: str, advice: str) -> None:
    document = _changed(change)
    with pytest.raises(TraceDocumentError) as refused:
        trace_from_document(document)
    assert place in str(refused.value)
    assert advice in str(refused.value)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("", "not JSON"),
        (dump_trace(EXAMPLE)[:-20], "cut off"),
        ("[]", "expected an object, got a list"),
        ('{"schema": "hitbound-trace/1", "schema": "hitbound-trace/1"}', 'the key "schema" occurs twice'),
        ('{"schema": NaN}', "NaN is not a JSON number"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_text_that_is_no_document_is_refused(text: str, advice: str) -> None:
    with pytest.raises(TraceDocumentError, match=advice):
        load_trace(text)


def test_every_truncation_is_refused() -> None:
    text = dump_trace(EXAMPLE).rstrip()
    for length in range(len(text)):
        with pytest.raises(TraceDocumentError):
            load_trace(text[:length])


def test_a_deep_connector_tree_is_refused() -> None:
    connector: dict[str, Any] = {"children": []}
    for _ in range(5_000):
        connector = {"children": [connector]}
    with pytest.raises(TraceDocumentError, match="nested too deeply"):
        trace_from_document(_changed(lambda d: d["configuration"].update(connector=connector)))


def test_file_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(TraceDocumentError, match=r"none\.json: cannot be read"):
        read_trace(tmp_path / "none.json")
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(TraceDocumentError, match=r"binary\.json: byte 0 is not UTF-8"):
        read_trace(binary)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    write_trace(EXAMPLE, path)
    assert read_trace(path) == EXAMPLE

    def interrupted(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        strict_json.write_text("half", path)
    assert read_trace(path) == EXAMPLE
    assert list(tmp_path.iterdir()) == [path]
