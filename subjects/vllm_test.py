"""A trace as a test for vLLM's own repository: it imports nothing of hitbound, to be pasted into a change there."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from pathlib import Path

from model.actions import Abort, Action, Arrive, Drain, EndLoad, Evict, Execute, Reset, Schedule, Step
from model.configuration import Configuration, Group, GroupKind, Scheduling, StateMode
from model.connector import Connector, Leaf
from model.errors import HitboundError
from model.release import NEWEST
from model.tokens import tokens_of
from model.trace import ExpectedAdmission, Trace
from subjects.commands import Commands

AUXILIARY = "-auxiliary"
"""A trace that says what a policy with this ending does runs with auxiliary outputs switched on."""

TEMPLATE = Path(__file__).with_name("vllm_test.template")


class NotForVllm(HitboundError):
    """A trace that a test of vLLM's scheduler alone cannot tell."""


def vllm_test(trace: Trace, admissions: tuple[ExpectedAdmission, ...]) -> str:
    """The text of the test. It asserts that these admissions are made, and that the scheduler raises nothing.

    Raises NotForVllm.
    """
    configuration = trace.configuration
    if configuration.release != NEWEST:
        raise NotForVllm(
            "the trace needs the rules of an older release; a test runs on the rules of the release it is in"
        )
    if any(group.draft or group.ranks > 1 for group in configuration.groups) or configuration.drafts:
        raise NotForVllm("draft models and context parallelism are not part of these tests yet")
    if configuration.scheduling is not Scheduling.FCFS:
        raise NotForVllm("scheduling by priority is not part of these tests yet")
    if configuration.state_mode is not StateMode.ALIGN:
        raise NotForVllm(f"states are written in mode {configuration.state_mode.value!r}; these tests know align only")
    words = re.findall(r"[a-z0-9]+", trace.title.lower())[:8]
    return string.Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=trace.title.replace("\\", " ").replace('"""', "'''"),
        reason=f"\nSource: {trace.source}.\n" if trace.source else "",
        groups="\n".join(f"    {_spec(group, configuration)}," for group in configuration.groups),
        pool_blocks=configuration.pool_blocks,
        hash_block=configuration.hash_block,
        budget=configuration.budget,
        steps_in_flight=configuration.steps_in_flight,
        retention=configuration.retention,
        auxiliary_outputs=any(expected.policy.endswith(AUXILIARY) for expected in trace.expectations),
        connector=None if configuration.connector is None else _connector(configuration.connector),
        name="_".join(words) or "trace",
        body="\n".join(f"    {line}" for line in _body(trace, admissions)),
    )


def _spec(group: Group, configuration: Configuration) -> str:
    sizes = f"block_size={group.block}, num_kv_heads=1, head_size=1, dtype=torch.float32"
    match group.kind:
        case GroupKind.FULL_ATTENTION:
            return f"FullAttentionSpec({sizes})"
        case GroupKind.SLIDING_WINDOW:
            return f"SlidingWindowSpec({sizes}, sliding_window={group.window})"
        case GroupKind.MAMBA:
            state = f'block_size={group.block}, shapes=((1,),), dtypes=(torch.float32,), mamba_cache_mode="align"'
            if configuration.checkpoint_alignment is None:
                return f"MambaSpec({state})"
            alignment = configuration.checkpoint_alignment
            checkpoint = f"num_prefill_checkpoint_blocks=1, prefill_checkpoint_alignment={alignment}"
            return f"call(MambaSpec, {state}, {checkpoint})"
    raise NotForVllm(f"a {group.kind.value} group is not part of these tests yet")


def _connector(connector: Connector) -> dict[str, object]:
    if isinstance(connector, Leaf):
        return {"name": connector.name, "claims": connector.claims}
    return {"children": [_connector(child) for child in connector.children]}


def _body(trace: Trace, admissions: tuple[ExpectedAdmission, ...]) -> Iterator[str]:
    commands, texts = Commands(), {}
    for action in trace.actions:
        if isinstance(action, Arrive):
            texts[action.request] = tokens_of(action.prompt) + tokens_of(action.output)
        yield from _line(action, commands, trace.configuration, texts)
    for expected in admissions:
        yield f"assert engine.resumed[{expected.request!r}] == ({expected.local}, {expected.external})  # (L, E)"
    for request in sorted(texts.keys() - {expected.request for expected in admissions}):
        yield f"assert {request!r} not in engine.resumed  # it is put off"


def _line(
    action: Action, commands: Commands, configuration: Configuration, texts: dict[str, tuple[str, ...]]
) -> Iterator[str]:
    match action:
        case Arrive():
            arguments = commands.command(action)[1]
            said = {leaf: [tuple(answer) for answer in script] for leaf, script in arguments["answers"].items()}
            answers = f", {said}" if said else ""
            texts_of = f"{_list(arguments['prompt'])}, {_list(arguments['output'])}"
            yield f"engine.arrive({action.request!r}, {texts_of}{answers})"
        case Step(failed_loads=(), failed_blocks=()):
            yield f"engine.step({action.budget or ''})"
        case Step(failed_blocks=()):
            yield f"engine.step({action.budget or None}, failed_loads={list(action.failed_loads)})"
        case Schedule():
            yield f"engine.schedule({action.budget or ''})"
        case Execute(failed_loads=(), failed_blocks=()):
            yield "engine.execute()"
        case Execute(failed_blocks=()):
            yield f"engine.execute(failed_loads={list(action.failed_loads)})"
        case Drain():
            yield f"engine.drain({action.budget or ''})"
        case Evict():
            ids = [commands.token_ids[token] for token in texts[action.request][: action.boundary]]
            yield f"engine.evict({action.group}, {_list(ids)})"
        case EndLoad(succeeded=True):
            yield f"engine.end_load({action.request!r})"
        case Abort():
            yield f"engine.abort({action.request!r})"
        case Reset():
            yield "engine.reset()"
        case _:
            raise NotForVllm(f"{action}: not part of these tests yet")


def _list(numbers: list[int]) -> str:
    """Runs of numbers as ranges, which is what prompts mostly are."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return "[" + ", ".join(f"*range({first}, {end})" if end - first > 1 else str(first) for first, end in runs) + "]"
