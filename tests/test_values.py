"""Changed copies: the quick way gives what attrs gives, for every class that it copies."""

from __future__ import annotations

import inspect
from functools import cached_property

import attrs
import pytest

from model import in_flight, plan, pool, request, scheduler, system, worker
from model.values import evolve

MODULES = (in_flight, plan, pool, request, scheduler, system, worker)
COPIED = {
    kind
    for module in MODULES
    for _, kind in inspect.getmembers(module, inspect.isclass)
    if attrs.has(kind) and "__slots__" not in vars(kind)
}


@pytest.mark.parametrize("kind", sorted(COPIED, key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_a_class_without_slots_keeps_nothing_beside_its_fields_and_checks_nothing(kind: type) -> None:
    assert not any(isinstance(member, cached_property) for member in vars(kind).values())
    assert not hasattr(kind, "__attrs_post_init__")
    assert not any(field.validator or field.converter for field in attrs.fields(kind))


def test_a_changed_copy_is_the_one_that_attrs_makes() -> None:
    before = pool.new_pool(5)
    assert pool.Pool in COPIED
    assert evolve(before, free=(1, 2)) == attrs.evolve(before, free=(1, 2)) != before
