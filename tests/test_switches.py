"""Every switch of the model is read by it, and every value of it is in a report's case, in the corpus, or drawn.

A switch that nothing reads, or a value that no engine ever runs, shows nothing.
"""

from __future__ import annotations

import ast
import enum
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import attrs
import hypothesis
import pytest

from hitbound.corpus import cases
from model.actions import Arrive, EvictObject, Step
from model.configuration import Configuration, Eviction, Group
from model.connector import Conduct, Leaf
from model.peer import PeerRules
from model.release import RELEASES, Release
from model.rules.states import LeftOut
from model.store_rules import StoreRules
from properties.catalogue import EVENTS
from properties.fuzz import WIDE
from properties.repeatable import repeatable_draws
from properties.strategies import configurations
from properties.trace_document import read_trace
from properties.verdict import REQUIRED_CELL
from solver.scopes import SCOPES
from subjects.courses import rules_on_a_subject
from tests.faulty_policies import FAULTS
from tests.rule_searches import SEARCHES
from tests.test_speculation import with_one_left_out

MODEL = Path(__file__).parents[1] / "model"
CORPUS = Path(__file__).parent / "corpus"

SWITCHES = (Release, Configuration, Group, Leaf, Conduct, StoreRules, PeerRules)
ACTIONS = (Arrive, Step, EvictObject)

DRAWS = 150
"""Configurations that are drawn of each campaign."""


def fields_of(kind: type) -> list[str]:
    return [field.name for field in attrs.fields(kind)]


def names_read() -> set[str]:
    """Attributes that some function of the model reads."""
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in MODEL.rglob("*.py"))
    return {
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    } | {
        keyword
        for file in MODEL.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.MatchClass)
        for keyword in node.kwd_attrs
    }


@pytest.mark.parametrize("kind", SWITCHES + ACTIONS)
def test_every_switch_is_read(kind: type) -> None:
    assert set(fields_of(kind)) <= names_read()


def parts(value: object) -> Iterator[object]:
    """The value and all that it is made of."""
    yield value
    if attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            yield from parts(getattr(value, field.name))
    elif isinstance(value, tuple):
        for part in value:
            yield from parts(part)


def drawn() -> list[Configuration]:
    found: list[Configuration] = []

    def keep(configuration: Configuration) -> None:
        found.append(configuration)

    for cell, features in ((REQUIRED_CELL, frozenset()), *WIDE):
        for eviction in Eviction:
            strategy = configurations(cell, eviction, None, features)
            limits = hypothesis.settings(max_examples=DRAWS, database=None, deadline=None)
            with repeatable_draws():
                hypothesis.seed(0)(limits(hypothesis.given(strategy)(keep)))()
    return found


def used() -> Iterator[object]:
    yield from drawn()
    yield from RELEASES.values()
    yield from map(rules_on_a_subject, RELEASES)
    yield from (fault.configuration for fault in FAULTS)
    yield from ((search.release, search.connector) for search in SEARCHES.values())
    yield with_one_left_out(LeftOut.FORGOTTEN).trace
    for case in cases():
        yield from (case.before.trace, case.after.trace)
    folders = (CORPUS, CORPUS / "counterexamples")
    yield from (read_trace(file) for folder in folders for file in sorted(folder.glob("*.json")))
    yield from ((scope.configuration, scope.arrivals) for scope in SCOPES.values())


def values() -> dict[tuple[type, str], set[object]]:
    """What each switch is set to somewhere."""
    seen: dict[tuple[type, str], set[object]] = defaultdict(set)
    for each in used():
        for part in parts(each):
            if type(part) in SWITCHES:
                for name in fields_of(type(part)):
                    seen[type(part), name].add(getattr(part, name))
    return seen


def never_used(found: set[object]) -> set[object]:
    """Values that a switch could have and has nowhere: of an enum all, of a number any second one."""
    domain = next((set(type(value)) for value in found if isinstance(value, enum.Enum)), set[object]())
    if any(isinstance(value, bool) for value in found):
        domain = {False, True}
    return domain - found if domain else {"another value"} if len(found) < 2 else set()


@pytest.mark.slow
def test_every_value_is_used() -> None:
    seen = values()
    missing = {f"{kind.__name__}.{name}": never_used(seen[kind, name]) for kind in SWITCHES for name in fields_of(kind)}
    assert {name: each for name, each in missing.items() if each} == {}


FEATURES = Path(__file__).parents[1] / "docs" / "features.md"


def test_the_table_of_features_names_what_there_is() -> None:
    rows = [line.strip("| \n").split(" | ") for line in FEATURES.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if len(row) == 5 and row[0] != "feature" and not row[0].startswith("---")]
    assert len(rows) > 30
    known = {f"{kind.__name__}.{name}" for kind in SWITCHES + ACTIONS for name in fields_of(kind)}
    numbers = {str(case.number) for case in cases()}
    for feature, files, switches, events, verified in rows:
        assert all((MODEL / name).exists() for name in re.findall(r"`(\w+\.py)`", files)), feature
        assert set(re.findall(r"`([\w.]+)`", switches)) <= known, feature
        assert set(re.findall(r"\b[A-Z][A-Z-]{4,}\b", events)) - {"OWN-RESERVE"} <= EVENTS.keys(), feature
        for told in re.findall(r"cases? ([\d, ]+)", verified):
            assert set(re.findall(r"\d+", told)) <= numbers, feature
