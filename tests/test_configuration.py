"""Configurations: what is derived from the groups, and what is refused."""

import pytest

from model.configuration import Configuration, ConfigurationClass, Group, GroupKind
from model.connector import Composite, Contract, Leaf
from model.errors import ConfigurationError, UnsupportedConfiguration

FULL = Group(GroupKind.FULL_ATTENTION, 32)
MAMBA = Group(GroupKind.MAMBA, 16)
SLIDING = Group(GroupKind.SLIDING_WINDOW, 16, window=24)


def configuration(*groups: Group, **more: object) -> Configuration:
    return Configuration(groups, **{"pool_blocks": 64, "budget": 128, **more})  # type: ignore[arg-type]


def test_sizes_are_derived_from_the_groups() -> None:
    made = configuration(MAMBA, FULL, SLIDING)
    assert (made.hash_block, made.scheduler_block, made.mamba_block) == (16, 32, 16)


def test_equal_specs_are_looked_up_together_and_full_attention_first() -> None:
    assert configuration(MAMBA, FULL, MAMBA, SLIDING, FULL).specs == ((1, 4), (0, 2), (3,))


def test_a_second_attention_spec_makes_the_class() -> None:
    assert configuration(FULL, FULL, MAMBA).configuration_class is ConfigurationClass.ONE_ATTENTION_SPEC
    assert configuration(FULL, SLIDING).configuration_class is ConfigurationClass.SECOND_ATTENTION_SPEC


@pytest.mark.parametrize(
    ("groups", "more", "error", "says"),
    [
        ((MAMBA,), {}, UnsupportedConfiguration, "no full-attention group"),
        ((FULL, MAMBA, Group(GroupKind.MAMBA, 32)), {}, ConfigurationError, "share one block size"),
        ((FULL,), {"hash_block": 5}, ConfigurationError, "does not divide"),
        ((FULL,), {"pool_blocks": 1}, ConfigurationError, "null block"),
        ((FULL,), {"budget": 0}, ConfigurationError, "schedules nothing"),
    ],
)
def test_what_no_engine_or_not_yet_this_model_can_run_is_refused(
    groups: tuple[Group, ...], more: dict[str, int], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        configuration(*groups, **more)


def test_a_window_belongs_to_a_sliding_window_and_to_nothing_else() -> None:
    with pytest.raises(ConfigurationError, match="needs a window"):
        Group(GroupKind.SLIDING_WINDOW, 16)
    with pytest.raises(ConfigurationError, match="takes no window"):
        Group(GroupKind.MAMBA, 16, window=3)


def test_leaf_names_are_addresses() -> None:
    leaf = Leaf("store", claims=False, contract=Contract.BACKED)
    with pytest.raises(ConfigurationError, match="not unique"):
        configuration(FULL, MAMBA, connector=Composite((leaf, Composite((leaf,)))))
