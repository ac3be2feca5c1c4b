"""What is run on a subject: courses of traces, and by which policy and rules the model follows its release."""

from __future__ import annotations

import attrs

from model.configuration import ConfigurationClass, Eviction, GroupKind
from model.policies import POLICIES
from model.policy import Policy
from model.release import Release, number_of, rules_of
from model.rules.scheduling import Reservation, WaitingOrder
from properties.catalogue import applicable_events
from properties.features import Feature
from properties.invariant import Setting
from subjects.generation import random_run
from subjects.model_run import ModelRun


@attrs.frozen
class Profile:
    """How many traces of at most `actions` actions run: in all, made up to whole rounds, or in each course of a
    connector. A profile without a seed draws one."""

    name: str
    traces: int
    actions: int
    seed: int | None


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("quick", traces=240, actions=25, seed=0),
        Profile("ci", traces=1400, actions=25, seed=0),
        Profile("nightly", traces=50_000, actions=30, seed=None),
    )
}

PLAIN: frozenset[Feature] = frozenset()
TAILS = frozenset({Feature.PARTIAL_TAILS})
DRAFTS = frozenset({Feature.DRAFT_MODEL, Feature.SPARSE_RETENTION, Feature.CHUNKED_LOCAL})
SPARSE_TAILS = TAILS | {Feature.DRAFT_MODEL, Feature.SPARSE_RETENTION}
STEPS = frozenset({Feature.STEPS_IN_FLIGHT})
SPECULATING_TAILS = TAILS | {Feature.SPECULATION}

SLIDING_WINDOW, FULL_ATTENTION = GroupKind.SLIDING_WINDOW, GroupKind.FULL_ATTENTION


@attrs.frozen
class Course:
    """What the traces of one kind draw: a second attention spec, how blocks are evicted, and features. A round has
    `traces` of it."""

    second_attention: GroupKind | None
    eviction: Eviction
    features: frozenset[Feature]
    traces: int

    def __str__(self) -> str:
        second = self.second_attention.value.replace("_", " ") if self.second_attention else "one attention spec"
        return "; ".join([second, self.eviction.value, *sorted(feature.value for feature in self.features)])

    def setting(self, policy: Policy) -> Setting:
        """Where its traces run, as far as that decides what can happen in them."""
        second = ConfigurationClass.SECOND_ATTENTION_SPEC
        kind = ConfigurationClass.ONE_ATTENTION_SPEC if self.second_attention is None else second
        return Setting(policy, kind, self.eviction, self.features)


def courses_on(release: str) -> tuple[Course, ...]:
    """What runs on a release: partial tails and what came with them are modelled as 0.28 and later have them, draft
    models as 0.27 and later. Most is found where partial tails are drawn, so most traces draw them."""
    drawn: list[tuple[frozenset[Feature], dict[GroupKind | None, int]]] = [
        (PLAIN, {None: 1, SLIDING_WINDOW: 1, FULL_ATTENTION: 1}),
    ]
    if number_of(release) >= (0, 27):
        drawn += [(DRAFTS, {None: 1, SLIDING_WINDOW: 1})]
    if number_of(release) >= (0, 28):
        drawn += [
            (TAILS, {None: 8, SLIDING_WINDOW: 1}),
            (SPARSE_TAILS, {None: 3}),
            (STEPS, {None: 1, SLIDING_WINDOW: 1}),
            (STEPS | TAILS, {None: 3}),
            (SPECULATING_TAILS, {None: 1}),
            (SPECULATING_TAILS | STEPS, {None: 1}),
        ]
    return tuple(
        Course(second, eviction, features, traces)
        for features, seconds in drawn
        for eviction in (Eviction.ADVERSARIAL, Eviction.LRU)
        for second, traces in seconds.items()
    )


def is_compared(release: str, course: Course) -> bool:
    """Whether the model is compared. Up to 0.28, two full-attention specs with different blocks are not: there the
    second hit list is not trimmed to the common hit."""
    untrimmed = course.second_attention is FULL_ATTENTION and number_of(release) < (0, 29)
    return number_of(release) >= (0, 27) and not untrimmed


NOT_DRAWN = frozenset({"SYNCHRONOUS-LOAD-FAILED", "ROLLED-BACK-IN-FLIGHT"})
"""Events that no trace here brings about: no release recovers from such a failure as the model does, with several
groups (see `Recovery`)."""


def events_of(course: Course, policy: Policy) -> frozenset[str]:
    """Events that the traces of a course have to bring about, some of them at least."""
    return applicable_events(course.setting(policy)) - NOT_DRAWN


def rules_on_a_subject(release: str) -> Release:
    """The rules of a release with its own estimate of blocks and its own queues, so that no trace ends for want of
    blocks that the model would have taken."""
    from_031 = number_of(release) >= (0, 31)
    return attrs.evolve(
        rules_of(release),
        reservation=Reservation.ESTIMATED if from_031 else Reservation.ESTIMATED_WITH_STATE,
        waiting_order=WaitingOrder.HOLDERS_FIRST if from_031 else WaitingOrder.SKIPPED_FIRST,
    )


def policy_of(release: str) -> Policy:
    """The newest shipped policy that is not newer than the release ("0.33.0" or "0.33.0+local")."""
    number = number_of(release)
    eras = {
        number_of(name.removeprefix("vllm-")): policy for name, policy in POLICIES.items() if name.startswith("vllm-")
    }
    known = [era for era in eras if era <= number]
    return eras[max(known)] if known else eras[max(eras)]


def run_of(course: Course, seed: int, policy: Policy, release: str, actions: int) -> ModelRun:
    """One trace of a course, as the model of the release runs it."""
    return random_run(
        seed,
        policy,
        second_attention=course.second_attention,
        eviction=course.eviction,
        features=course.features,
        release=rules_on_a_subject(release),
        actions=actions,
    )
