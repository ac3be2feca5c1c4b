"""A real scheduler as the scheduler side: what it shows after an action, as the observation that properties judge.

Its plans are executed on the shadow memory, by the worker that also executes the model's. Whatever it believes of its
blocks is taken over as it shows it (tables, labels, references); what they hold is not its to say.
"""

from __future__ import annotations

from typing import Any

import attrs

from model import worker as working
from model.actions import Action, Arrive, Drain, EndLoad
from model.admission import Admission, Decision
from model.composition import claim_of
from model.configuration import Configuration
from model.connector import Leaf, leaves_of
from model.in_flight import InFlight, after_rejection
from model.loading import writes_of
from model.lookup import look_up
from model.plan import Chunk, Copy, Load, StepPlan, Table
from model.policy import COMMON, NOTHING, PER_GROUP, Answer, Policy
from model.pool import Label, Pool
from model.request import Request, Status
from model.scheduler import Scheduler
from model.speculation import with_drafts_verified
from model.system import Observation, System, initial
from model.tokens import Prefix, tokens_of
from model.worker import Worker
from subjects.commands import Commands
from subjects.observed import STATUS, as_tables, asked_again, build_arguments, is_known, own_hits
from subjects.process import Failure, SubjectProcess


class SubjectEngine:
    """One run of a real scheduler. `policy` is that of its release: it says how the connector tree claims and names the
    hits of an admission for the report, never whether anything is right."""

    def __init__(self, configuration: Configuration, policy: Policy, process: SubjectProcess) -> None:
        self.system = initial(configuration)
        self.policy = policy
        self.process = process
        self.commands = Commands()
        self.outputs: dict[str, tuple[int, Prefix]] = {}
        self.loads: dict[str, tuple[Load, ...]] = {}
        self.reply: dict[str, Any] | Failure = {}
        """What the subject answered to the last action."""
        self.in_flight: list[InFlight] = []

    def build(self) -> Failure | None:
        """A fresh scheduler with an empty cache; why there is none, if the subject refuses the configuration."""
        reply = self.process.ask("build", **build_arguments(self.system.configuration))
        return reply if isinstance(reply, Failure) else None

    def act(self, action: Action) -> Observation | Failure:
        """Let `action` happen (of a drain, one step); what happened, or what the subject did instead of answering."""
        texts = dict(self.system.texts)
        if isinstance(action, Arrive):
            prompt, output = tokens_of(action.prompt), tokens_of(action.output)
            texts[action.request] = prompt + output
            self.outputs[action.request] = len(prompt), output
        do, arguments = self.commands.command(action)
        if isinstance(action, Drain) and self.in_flight:
            do, arguments = "execute", {}
        reply = self.reply = self.process.ask(do, **arguments)
        if isinstance(reply, Failure):
            return reply
        if any(block < 0 for block in reply.get("step", {}).get("taken", ())):
            # Its count of free blocks was too high, and what it took is the end of the queue.
            return Failure("InvalidBlock", "the pool hands out a block that is the end of its free queue")
        before, worker = self.system, self.system.worker
        if isinstance(action, EndLoad):
            for load in self.loads.pop(action.request, ()):
                worker = working.end_load(before.configuration, worker, load, action.succeeded)
                ended = attrs.evolve(load, fails=not action.succeeded)
                written = {write.block for write in writes_of(before.configuration, ended, worker.objects)}
                self.in_flight = [step.without_wiping(written) for step in self.in_flight]
        match do:
            case "step":
                scheduled = self._scheduled(action, reply, texts)
                executed = self._executed(action, reply, texts)
                return attrs.evolve(
                    scheduled,
                    after=executed.after,
                    plan=executed.plan,
                    execution=executed.execution,
                    started=executed.started,
                )
            case "schedule":
                return self._scheduled(action, reply, texts)
            case "execute":
                return self._executed(action, reply, texts)
        self.system = self._system(reply, texts, worker)
        return Observation(action, before, self.system)

    def _scheduled(self, action: Action, reply: dict[str, Any], texts: dict[str, Prefix]) -> Observation:
        before = self.system
        step = reply["step"]
        attempts = [attempt for attempt in step["attempts"] if attempt["outcome"] == "allocated"]
        ran = {attempt["request"] for attempt in attempts if not attempt["waiting"]}
        admissions = tuple(self._admission(attempt, step, texts) for attempt in _admitted(step))
        for admission in admissions:
            if any(load.asynchronous for load in admission.loads):
                self.loads[admission.decision.request] = admission.loads
        plan = self._plan(reply, admissions, texts)
        self.in_flight.append(InFlight(plan, admissions))
        self.system = self._system(reply, texts, before.worker)
        return Observation(
            action=action,
            before=before,
            after=self.system,
            planned=plan,
            admissions=admissions,
            put_off=tuple(attempt["request"] for attempt in step["attempts"] if attempt["outcome"] == "put_off"),
            asked_again=tuple(asked_again(step)),
            preempted=tuple(step["preempted"]),
            taken_out=tuple(name for name in step["preempted"] if name in ran),
        )

    def _executed(self, action: Action, reply: dict[str, Any], texts: dict[str, Prefix]) -> Observation:
        before, step = self.system, self.in_flight.pop(0)
        plan = with_drafts_verified(step.plan, action, texts)
        for chunk in plan.chunks:
            self.in_flight = [*after_rejection(tuple(self.in_flight), chunk.request, chunk.rejected)]
        worker, execution = working.execute(before.configuration, before.worker, plan)
        self.system = self._system(reply, texts, worker)
        return Observation(
            action=action,
            before=before,
            after=self.system,
            plan=plan,
            execution=execution,
            started=step.admissions,
        )

    def _plan(self, reply: dict[str, Any], admissions: tuple[Admission, ...], texts: dict[str, Prefix]) -> StepPlan:
        step = reply["step"]
        groups = len(self.system.configuration.groups)
        chunks = []
        for name, count in step["scheduled"]:
            computed = step["computed"][name]
            blocks = step["new_blocks"][name] or [()] * groups
            drafts, padded = step["drafts"].get(name, (0, False))
            chunks.append(
                Chunk(
                    request=name,
                    prefix=texts[name][: computed + count],
                    computed=computed,
                    count=count,
                    starts=name in step["starts"],
                    new_blocks=tuple(tuple(table) for table in blocks),
                    drafts=min(drafts, count - 1),
                    rejected=min(drafts, count - 1) if padded else 0,
                )
            )
        synchronous = (load for admission in admissions for load in admission.loads if not load.asynchronous)
        return StepPlan(
            chunks=tuple(chunks),
            loads=tuple(synchronous),
            taken=tuple(step["taken"]),
            copies=tuple(_copy(source, destination, reply) for source, destination in step["copies"]),
        )

    def _admission(self, attempt: dict[str, Any], step: dict[str, Any], texts: dict[str, Prefix]) -> Admission:
        configuration = self.system.configuration
        name, local, external = attempt["request"], attempt["local"], attempt["external"]
        tokens = texts[name][: self._known(name)]
        told = {leaf: count for leaf, request, count in step["told"] if request == name}
        asked, answer = self._asked(name, step, told, local)
        boundary = asked if asked is not None else local
        lookup = look_up(
            self.policy,
            configuration,
            self.system.scheduler.pool,
            tokens,
            PER_GROUP if attempt["per_group"] else COMMON,
            self.policy.cap(len(tokens)),
        )
        decision = Decision(
            request=name,
            prefix=tokens,
            claims=claim_of(self.policy, configuration.connector) if configuration.connector else None,
            lookup=lookup,
            first_local=boundary,
            diverged=attempt["diverged"],
            asked=boundary,
            answer=answer,
            said=(answer,),
            local=local,
            external=external,
            reached=own_hits(configuration, attempt),
            backed=all(view.valid(boundary) for view in lookup.views if view.recurrent),
        )
        loads = tuple(
            self._load(leaf, decision, as_tables(attempt["tables"]), attempt["asynchronous"])
            for leaf in (leaves_of(configuration.connector) if configuration.connector else ())
            if told.get(leaf.name, 0) > 0 or (external > 0 and leaf.conduct.writes_unassigned)
        )
        return Admission(decision, loads, 0 if attempt["asynchronous"] else dict(step["scheduled"]).get(name, 0))

    def _load(self, leaf: Leaf, decision: Decision, tables: tuple[Table, ...], asynchronous: bool) -> Load:
        return Load(
            request=decision.request,
            leaf=leaf,
            prefix=decision.prefix,
            start=decision.local,
            end=decision.resume,
            tables=tables,
            local=decision.reached,
            backed=decision.backed,
            asynchronous=asynchronous,
            assigned=decision.answer.source == self._leaf_number(leaf),
        )

    def _asked(self, name: str, step: dict[str, Any], told: dict[str, int], local: int) -> tuple[int | None, Answer]:
        """From which boundary the connector was asked last, and what it answered; its source is whoever loads."""
        answers = [(at, tokens, later) for request, at, tokens, later in step["asked"] if request == name]
        if not answers or self.system.configuration.connector is None:
            return None, NOTHING
        at, tokens, later = answers[-1]
        loaders = [leaf for leaf in leaves_of(self.system.configuration.connector) if told.get(leaf.name, 0) > 0]
        source = self._leaf_number(loaders[0]) if loaders else -1
        return at, Answer(unknown=False, tokens=tokens or 0, asynchronous=bool(later), source=source)

    def _leaf_number(self, leaf: Leaf) -> int:
        assert self.system.configuration.connector is not None
        return list(leaves_of(self.system.configuration.connector)).index(leaf)

    def _known(self, name: str) -> int:
        """Known tokens of a request, prompt and sampled output, before the step."""
        request = self.system.scheduler.requests.get(name)
        return len(request.tokens) if request is not None else self.outputs[name][0]

    def _system(self, reply: dict[str, Any], texts: dict[str, Prefix], worker: Worker) -> System:
        configuration = self.system.configuration
        requests = {name: self._request(name, shown, texts) for name, shown in reply["requests"].items()}
        scheduler = Scheduler(
            configuration=configuration,
            pool=_pool(configuration, reply, texts),
            requests=requests,
            running=tuple(reply["running"]),
            waiting=tuple(reply["waiting"]),
            skipped=tuple(reply["skipped"]),
            in_flight=tuple(self.in_flight),
            copied=(tuple(reply["deferred"]),),
        )
        return attrs.evolve(self.system, scheduler=scheduler, worker=worker, texts=texts)

    def _request(self, name: str, shown: dict[str, Any], texts: dict[str, Prefix]) -> Request:
        prompt, _ = self.outputs[name]
        in_flight = sum(chunk.count for step in self.in_flight for chunk in step.plan.chunks if chunk.request == name)
        status = next((ours for ours, theirs in STATUS.items() if shown["status"] in theirs), Status.WAITING)
        return Request(
            name=name,
            tokens=texts[name][: shown["tokens"]],
            prompt_length=prompt,
            unsampled=texts[name][shown["tokens"] :],
            answers={},
            asked={},
            status=status,
            computed=shown["computed"],
            tables=as_tables(shown["tables"]),
            loads=self.loads.get(name, ()),
            started=status is Status.RUNNING,
            in_flight=in_flight,
            stale=in_flight if shown["dropped"] else 0,
            drop_stale=shown["dropped"],
            drafts=shown["drafts"],
        )


def _copy(source: int, destination: int, reply: dict[str, Any]) -> Copy:
    """The group is that of the table entry that has the destination; only there it is told whether it replaces."""
    for shown in reply["requests"].values():
        for group, table in enumerate(shown["tables"]):
            if destination in table:
                return Copy(group, source, destination, replaces=True)
    return Copy(0, source, destination, replaces=False)


def _admitted(step: dict[str, Any]) -> list[dict[str, Any]]:
    """Attempts that admitted a request with nothing computed."""
    asked = {request for request, *_ in step["asked"]}
    return [
        attempt
        for attempt in step["attempts"]
        if attempt["waiting"] and attempt["outcome"] == "allocated" and (attempt["request"] in asked or attempt["new"])
    ]


def _pool(configuration: Configuration, reply: dict[str, Any], texts: dict[str, Prefix]) -> Pool:
    labels: list[Label | None] = [None] * len(reply["references"])
    aliases: dict[int, tuple[Label, ...]] = {}
    cached: dict[Label, tuple[int, ...]] = {}
    for group, request, boundary, blocks in reply["labels"]:
        if not is_known(configuration, group, boundary):
            continue
        label = Label(group, texts[request][:boundary])
        cached[label] = (*cached.get(label, ()), *blocks)
        for block in blocks:
            if labels[block] is None:
                labels[block] = label
            else:
                aliases[block] = (*aliases.get(block, ()), label)
    # vLLM keeps a reference on the null block, which means nothing: it is never taken.
    refs = (0, *reply["references"][1:])
    return Pool(refs=refs, labels=tuple(labels), free=tuple(reply["free"]), cached=cached, aliases=aliases)
