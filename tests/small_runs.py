"""Small runs with blocks of 2 tokens: a prefix is cached, something of it is lost, and a request shares it."""

from __future__ import annotations

from model.actions import Action, Arrive, Drain, Evict, LeafAnswers, ScriptedAnswer
from model.configuration import Configuration, Eviction, Group, GroupKind, WorkerOrder
from model.connector import Connector, Contract, Leaf
from model.policies import POLICIES
from model.policy import Policy
from model.system import Observation, System, apply, initial
from model.tokens import Segment
from model.trace import Trace
from properties.judge import violations
from properties.replay import Replay, replay
from properties.twin import disagreement, execute, new_twin
from properties.verdict import Case

ATTENTION, MAMBA = Group(GroupKind.FULL_ATTENTION, 2), Group(GroupKind.MAMBA, 2)
WINDOW = Group(GroupKind.SLIDING_WINDOW, 2, 4)

V024, V027, V028 = POLICIES["vllm-0.24"], POLICIES["vllm-0.27"], POLICIES["vllm-0.28"]

CLAIMER = Leaf("claimer", claims=True, contract=Contract.ENDPOINT)
STORE = Leaf("store", claims=False, contract=Contract.BACKED)


def hybrid(
    connector: Connector | None = None,
    *groups: Group,
    order: WorkerOrder = WorkerOrder.LOAD_BEFORE_COPY,
    budget: int = 2,
) -> Configuration:
    """Full attention and Mamba unless other groups are given; one block a step; anything may be evicted."""
    return Configuration(
        groups or (ATTENTION, MAMBA),
        pool_blocks=40,
        budget=budget,
        connector=connector,
        eviction=Eviction.ADVERSARIAL,
        worker_order=order,
    )


def arrive(request: str, shared: int, own: int, **answers: int | None) -> Arrive:
    """A request of `shared` tokens that all requests have in common, then `own` ones. A leaf answers as named."""
    prompt = (Segment("x", shared), Segment(request, own))
    said = tuple(LeafAnswers(leaf, (ScriptedAnswer(tokens),)) for leaf, tokens in answers.items())
    return Arrive(request, prompt, (Segment(f"{request}-out", 1),), said)


# x0 to x3 are computed and cached block by block, with a state at 2 and at 4.
FILLED = (arrive("fill", 4, 0), Drain())
STATE_LOST = (*FILLED, Evict(1, "fill", 4))
"""Attention has 4 tokens, Mamba 2."""
ATTENTION_LOST = (*FILLED, Evict(0, "fill", 4), Evict(1, "fill", 2))
"""Attention has 2 tokens, Mamba 4 and not 2."""


def run(policy: Policy, configuration: Configuration, *actions: Action) -> Replay:
    """Replay the actions."""
    return replay(Trace("test", configuration, actions), policy)


def found(replayed: Replay, property: str) -> list[tuple[Case | None, str]]:
    """Cases and messages of the violations of one property."""
    return [(violation.case, violation.message) for violation in replayed.violations if violation.property == property]


def after(configuration: Configuration, *actions: Action) -> tuple[System, Observation]:
    """The engine after `actions`, and the last observation. Twin and shadow memory agree, and nothing is violated."""
    system, twin = initial(configuration), new_twin(configuration)
    for action in actions:
        system, observations = apply(system, POLICIES["vllm-0.33"], action)
        for observation in observations:
            assert not violations(observation)
            if observation.plan is not None and observation.execution is not None:
                twin, outputs = execute(configuration, twin, observation.plan)
                flagged = {read.request for read in observation.execution.bad_reads}
                assert not disagreement(configuration, observation.plan, outputs, flagged)
    return system, observations[-1]
