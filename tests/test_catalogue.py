"""The catalogue: nothing is missing, every check is seen to fail somewhere, and events are recognised."""

from __future__ import annotations

from model.actions import Action, Drain, Evict, Step
from model.configuration import Configuration, ConfigurationClass, Eviction
from model.connector import Composite
from model.policies import POLICIES
from properties.catalogue import EVENTS, INVARIANTS, Kind, Setting, applicable_events
from properties.catalogue import Status as Checked
from properties.events import in_flight, speculation
from properties.features import Feature
from properties.judge import events
from tests.faulty_policies import FAULTS, Raises
from tests.small_runs import (
    ATTENTION,
    ATTENTION_LOST,
    CLAIMER,
    FILLED,
    MAMBA,
    STATE_LOST,
    STORE,
    V024,
    V028,
    WINDOW,
    arrive,
    hybrid,
    run,
)

IDS = [
    "HIT-RESUME",
    "HIT-COVER",
    "HIT-SHRINK",
    "HIT-MEMBER",
    "HIT-LAST",
    "HIT-AGAIN",
    "CAP-MEET",
    "STATE-LABEL",
    "STATE-VISIBLE",
    "OWN-EXCLUSIVE",
    "OWN-RESERVE",
    "OWN-LEAK",
    "LOAD-SOURCE",
    "LOAD-ORDER",
    "LOAD-EXACT",
    "ASK-PURE",
    "ASK-UNKNOWN",
    "LOAD-PIN",
    "LOAD-ROLLBACK",
    "STORE-FENCE",
    "GEO-BLOCK",
    "GEO-INTERVAL",
    "REACH",
    "PROGRESS",
    "POLICY-TOTAL",
]


def test_every_invariant_is_in_the_catalogue() -> None:
    assert list(INVARIANTS) == IDS
    numbers = sorted(int(entry.number[1:]) for entry in INVARIANTS.values() if entry.number)
    assert numbers == list(range(1, 20))


def test_every_entry_says_why_it_is_checked_or_what_it_waits_for() -> None:
    for entry in INVARIANTS.values():
        assert entry.statement.endswith(".")
        assert entry.reason.endswith(".")
        assert (entry.status is Checked.WAITS) == (not entry.predicate and not entry.checked_by)
        assert entry.waits_for or entry.status is Checked.CHECKED
    waiting = {name for name, entry in INVARIANTS.items() if entry.status is Checked.WAITS}
    assert waiting == set()


def test_ids_are_used_once() -> None:
    assert set(INVARIANTS).isdisjoint(EVENTS)
    assert {entry.kind for entry in INVARIANTS.values()} == {Kind.SAFETY, Kind.PROTOCOL, Kind.COMPLETENESS}


def test_every_checked_invariant_is_seen_to_fail() -> None:
    by_policy = {fault.property for fault in FAULTS}
    by_hand = {
        "STATE-VISIBLE",
        "OWN-EXCLUSIVE",
        "OWN-RESERVE",
        "OWN-LEAK",
        "ASK-PURE",
        "LOAD-ROLLBACK",
        "GEO-BLOCK",
        "LOAD-PIN",
        "STORE-FENCE",
        "REACH",
        "PROGRESS",
        "POLICY-TOTAL",
    }
    assert by_policy | by_hand == {name for name, entry in INVARIANTS.items() if entry.status is Checked.CHECKED}


def test_events_are_seen() -> None:
    def seen(configuration: Configuration, *actions: Action) -> frozenset[str]:
        return frozenset[str]().union(*map(events, run(V028, configuration, *actions).observations))

    assert {"LOCAL-HIT", "STATE-COPIED"} <= seen(hybrid(), *FILLED, arrive("r", 4, 3), Drain())
    lagging = (*STATE_LOST, arrive("r", 4, 3, claimer=1), Step(failed_loads=("r",)))
    assert {
        "DIVERGENT-HIT",
        "LOCAL-AND-EXTERNAL-HIT",
        "UNALIGNED-RESUME",
        "EVICTED-AT-WILL",
        "SYNCHRONOUS-LOAD-FAILED",
        "DIVERGENT-LOAD-FAILED",
    } <= seen(hybrid(CLAIMER), *lagging)
    assert "FALLBACK" in seen(hybrid(CLAIMER), *STATE_LOST, arrive("r", 4, 3), Step())
    assert "DEEPER-THAN-ATTENTION" in seen(hybrid(), *ATTENTION_LOST, arrive("r", 4, 3), Step())
    nested = Composite((Composite((STORE,)), CLAIMER))
    assert {"NESTED-CHILD-WON", "MIXED-CLAIMS"} <= seen(hybrid(nested), arrive("r", 4, 3, store=2), Step())
    assert {"ASKED-AGAIN", "EVICTED-BEFORE-RETRY"} <= seen(
        hybrid(STORE), *FILLED, arrive("r", 4, 3, store=None), Step(), Evict(1, "fill", 4)
    )
    assert "PUT-OFF" in seen(hybrid(budget=8), arrive("a", 4, 1), arrive("b", 4, 2), Step())
    assert "SAME-STEP-ATTENTION" in seen(
        hybrid(None, ATTENTION, budget=8), arrive("a", 4, 1), arrive("b", 4, 2), Step()
    )
    windowed = hybrid(None, ATTENTION, WINDOW, MAMBA)
    assert {"WINDOW-NULLS", "ATTENTION-LAGS"} <= seen(
        windowed,
        arrive("fill", 8, 0),
        Drain(),
        arrive("r", 8, 3),
        Step(),
        Evict(1, "fill", 2),
        arrive("s", 3, 1),
        Drain(),
    )


def test_events_apply_where_they_can_happen() -> None:
    one, two = ConfigurationClass.ONE_ATTENTION_SPEC, ConfigurationClass.SECOND_ATTENTION_SPEC
    every_feature = frozenset(Feature)
    everywhere = applicable_events(Setting(V028, two, Eviction.ADVERSARIAL, every_feature))
    assert everywhere == set(EVENTS)
    with_steps = {event.id for event in in_flight.ENTRIES} | {"FAILED-IN-PART"}
    assert everywhere - applicable_events(Setting(V028, two, Eviction.ADVERSARIAL)) - with_steps == {
        "TRANSFERRED",
        "PEER-USED-UP",
        "STORED",
        "WIDE-OBJECT-LOADED",
        "STORE-LOADED",
        "OBJECT-LOST",
        "JOINED-HIT",
        "SAVE-OUTLIVES-REQUEST",
        "SAVE-FLUSHED",
        "SAVE-GIVEN-UP",
        "LOSER-SAVES",
        "TAIL-HIT",
        "TAIL-DROPPED",
        "TAIL-KEPT",
        "TAIL-ALIAS",
        "TAIL-PROMOTED",
        "TAIL-COPIED",
        "TAIL-MOVED",
        "CHUNK-INSIDE-BLOCK",
        "SHARDED-HIT",
        "READING-SKIPPED",
        "OUTPUTS-MISSING",
        "HIT-RERUN",
        "SHORT-HIT",
        "DRAFT-DROP",
        "STATE-NOT-KEPT",
        "SPARSE-HIT",
        "EVERY-STATE-HIT",
        "CHECKPOINT-STORED",
        "CHUNK-NULLS",
        "TAKEN-OUT",
        *(event.id for event in speculation.ENTRIES),
    }
    assert everywhere - applicable_events(Setting(V028, one, Eviction.LRU, every_feature)) == {
        "CHUNK-NULLS",
        "ATTENTION-LAGS",
        "WINDOW-NULLS",
        "EVICTED-AT-WILL",
    }
    common = applicable_events(Setting(POLICIES["vllm-0.23"], two, Eviction.ADVERSARIAL, every_feature))
    assert everywhere - common == {"DIVERGENT-HIT", "FALLBACK", "DIVERGENT-LOAD-FAILED"}
    assert everywhere - applicable_events(Setting(V024, two, Eviction.ADVERSARIAL, every_feature)) == {"FALLBACK"}
    # A policy that cannot be asked is excused from nothing.
    assert applicable_events(Setting(Raises(), two, Eviction.ADVERSARIAL, every_feature)) == set(EVENTS)
