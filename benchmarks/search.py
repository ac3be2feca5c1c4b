"""Measures the exhaustive search beside SPIN and minicheck on the scope `reference`, in one run, one after another.

    python benchmarks/search.py [--skip-slow] [--large] [--markdown FILE]

Needs `spin` and `gcc` on the path (Debian: apt-get install spin gcc) and installs minicheck into a temporary directory.
Each part runs in a process of its own, so that its time and its greatest memory are its own. Ends with exit code 1 if
the engines do not count the same states and transitions with symmetry off. `--skip-slow` leaves out what runs the
readable model on every transition (minicheck, and this search without symmetry): minutes. The search with symmetry and
SPIN are also compared with one more block in the pool, and with two more by `--large` (SPIN then takes 4 GB).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

HERE = Path(__file__).resolve().parent
MINICHECK = "minicheck==0.4.0"
POLICY = "vllm-0.28"
FIRST_COUNTEREXAMPLES = {"vllm-0.24": "synchronous-load", "vllm-0.27": "synchronous-load"}
"""Policy -> the scope in which explore looks for a HIT-RESUME violation."""


@attrs.frozen
class Measured:
    """One engine's run. `seconds` include start-up; `search_seconds` are the engine's own, for the search alone."""

    engine: str
    states: int
    transitions: int
    seconds: float
    search_seconds: float
    megabytes: float
    note: str = ""


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--skip-slow", action="store_true")
    arguments.add_argument("--large", action="store_true")
    arguments.add_argument("--markdown", type=Path)
    arguments.add_argument("--part", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.part:
        sys.stdout.write(json.dumps(PARTS[options.part]()))
        return 0
    text, agree = _report(options.skip_slow, options.large)
    sys.stdout.write(text)
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")
    return 0 if agree else 1


def _report(skip_slow: bool, large: bool) -> tuple[str, bool]:
    with tempfile.TemporaryDirectory() as scratch:
        runs = list(_runs(Path(scratch), skip_slow))
        pools = [_pool() + more for more in ((1, 2) if large else (1,))]
        larger = [
            run for pool in pools for run in (_own("explore", f"symmetric {pool}", ""), *_spin(Path(scratch), pool))
        ]
    plain = {(run.states, run.transitions) for run in runs if run.note.startswith("symmetry off")}
    agree = len(plain) == 1
    lines = [
        f"{platform.system()} {platform.machine()}, {_processor()}, {os.cpu_count()} cores; "
        f"Python {platform.python_version()}; {_first_line('spin', '-V')}; {_first_line('gcc', '--version')}; "
        f"{MINICHECK}; load {os.getloadavg()[0]:.1f} at the end.",
        "",
        *_table(runs),
        "",
        f"Counts with symmetry off are {'the same' if agree else 'NOT the same'} in all engines.",
        *_ratios(runs),
        *_inside(),
        "",
        f"With pools of {' and '.join(map(str, pools))} blocks instead of {_pool()}:",
        "",
        *_table(larger),
        *([] if skip_slow else _first_counterexamples()),
    ]
    return "\n".join(lines) + "\n", agree


def _table(runs: list[Measured]) -> Iterator[str]:
    yield "| engine | states | transitions | seconds | of these the search | states/s | MB |  |"
    yield "|---|---|---|---|---|---|---|---|"
    for run in runs:
        yield (
            f"| {run.engine} | {run.states:,} | {run.transitions:,} | {run.seconds:.2f} | {run.search_seconds:.2f} | "
            f"{run.states / run.search_seconds:,.0f} | {run.megabytes:.0f} | {run.note} |"
        )


def _runs(scratch: Path, skip_slow: bool) -> Iterator[Measured]:
    yield _own("explore", "symmetric", "symmetry on")
    yield from _spin(scratch)
    if not skip_slow:
        yield _own("explore", "plain", "symmetry off, nothing remembered")
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", scratch / "site", MINICHECK],
            check=True,
        )
        yield _own("minicheck", "minicheck", "symmetry off, the same successor function", scratch / "site")


def _own(engine: str, part: str, note: str, extra_path: Path | None = None) -> Measured:
    path = os.pathsep.join(map(str, filter(None, (HERE.parent, extra_path))))
    output, seconds, megabytes = _timed([sys.executable, __file__, "--part", part], {"PYTHONPATH": path})
    found = json.loads(output)
    return Measured(engine, found["states"], found["transitions"], seconds, found["seconds"], megabytes, note)


def _spin(scratch: Path, pool: int | None = None) -> Iterator[Measured]:
    for file in ("reference.pml", "reference.h"):
        (scratch / file).write_text((HERE / file).read_text(encoding="utf-8"), encoding="utf-8")
    flags = ["-O2", "-w", f"-DPOOL={pool or _pool()}", "-DSAFETY", "-DNOREDUCE", "-DMEMLIM=8000"]
    begin = time.perf_counter()
    subprocess.run(["spin", "-a", "reference.pml"], cwd=scratch, check=True, capture_output=True)
    subprocess.run(["gcc", *flags, "-o", "pan", "pan.c"], cwd=scratch, check=True, capture_output=True)
    built = time.perf_counter() - begin
    output, seconds, megabytes = _timed([str(scratch / "pan"), "-m100000"], {}, scratch)
    if "errors: 0" not in output:
        raise SystemExit(f"SPIN found an error, or did not finish:\n{output}")
    stored, matched = (int(re.findall(rf"(\d+) states, {word}", output)[0]) for word in ("stored", "matched"))
    # It also counts the state before the engine has started, and the way out of it.
    states, transitions = stored - 1, stored - 1 + matched - 1
    note = f"symmetry off; built in {built:.2f} s"
    yield Measured("SPIN", states, transitions, built + seconds, seconds, megabytes, note)


def _timed(command: list[str], environment: dict[str, str], directory: Path | None = None) -> tuple[str, float, float]:
    """Standard output, seconds and greatest resident memory in MB of a process."""
    begin = time.perf_counter()
    with subprocess.Popen(
        command, cwd=directory, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} failed with exit code {process.returncode}")
    return output, time.perf_counter() - begin, usage.ru_maxrss / 1000


def _ratios(runs: list[Measured]) -> Iterator[str]:
    own, spin = runs[0], runs[1]
    yield f"Time to verdict against SPIN: {spin.seconds / own.seconds:.1f} times as fast with building, "
    yield f"{spin.search_seconds / own.search_seconds:.2f} times as fast search against search."
    for run in runs[2:]:
        yield f"Against {run.engine} ({run.note}): {run.search_seconds / own.search_seconds:.0f} times as fast."


def _inside() -> Iterator[str]:
    found = json.loads(_timed([sys.executable, __file__, "--part", "inside"], {"PYTHONPATH": str(HERE.parent)})[0])
    yield ""
    yield (
        f"Inside the search with symmetry on: the model was asked {found['asked']:,} times "
        f"for {found['transitions']:,} transitions; per state {found['per_state']:.0f} us, "
        f"per transition {found['per_transition']:.0f} us; "
        + ", ".join(f"{name} {share:.0%}" for name, share in found["shares"].items())
        + f"; {found['bytes']:.0f} bytes per state."
    )


def _first_counterexamples() -> Iterator[str]:
    yield ""
    yield "Seconds until an engine has reported HIT-RESUME, start-up of the engine included:"
    yield ""
    yield "| policy | explore | fuzz (quick) | prove |"
    yield "|---|---|---|---|"
    for policy in FIRST_COUNTEREXAMPLES:
        cells = []
        for engine in ("explore", "fuzz", "prove"):
            part = f"{engine} {policy}"
            output, seconds, _ = _timed([sys.executable, __file__, "--part", part], {"PYTHONPATH": str(HERE.parent)})
            cells.append(f"{seconds:.1f}" if json.loads(output)["found"] else f"not found ({seconds:.1f})")
        yield f"| {policy} | {' | '.join(cells)} |"


def _search(symmetric: bool, pool: int | None = None) -> dict[str, Any]:
    from model.policies import POLICIES
    from solver.remembered_policy import remembered
    from solver.scopes import SCOPES
    from solver.search import FULL, NONE, Search

    scope = SCOPES["reference"]
    if pool is not None:
        scope = attrs.evolve(scope, configuration=attrs.evolve(scope.configuration, pool_blocks=pool))
    search = Search(scope, remembered(POLICIES[POLICY]), FULL if symmetric else NONE)
    begin = time.perf_counter()
    reached = search.run()
    assert reached.complete
    assert not reached.violations
    return {"states": len(reached.codes), "transitions": reached.transitions, "seconds": time.perf_counter() - begin}


def _minicheck() -> dict[str, Any]:
    from minicheck import Protocol, check_safety  # type: ignore[import-not-found]

    from model.policies import POLICIES
    from solver.codec import Codec
    from solver.remembered_policy import remembered
    from solver.scopes import SCOPES
    from solver.successors import Successors

    scope = SCOPES["reference"]
    successors = Successors(scope, remembered(POLICIES[POLICY]), Codec(scope, sort_blocks=False))
    counted = 0

    def transitions(state: tuple[Any]) -> list[tuple[str, tuple[Any]]]:
        nonlocal counted
        found = [(str(number), (after,)) for number, after, _ in successors.of(state[0])]
        counted += len(found)
        return found

    begin = time.perf_counter()
    result = check_safety(
        Protocol(
            name="reference",
            candidate=False,
            fields=("code",),
            initial=(successors.initial,),
            transitions=transitions,
            invariants={"sound": lambda state: state["code"] is not None},
        ),
        max_states=5_000_000,
    )
    assert result["properties"]["sound"]["holds"] is True
    seconds = time.perf_counter() - begin
    return {"states": result["reachable_states"], "transitions": counted, "seconds": seconds}


def _profile() -> dict[str, Any]:
    """Where the time of a search goes, from a run under the profiler, and what a state costs."""
    import cProfile
    import pstats

    from model.policies import POLICIES
    from solver.memo import MemoisedSuccessors
    from solver.remembered_policy import remembered
    from solver.scopes import SCOPES
    from solver.search import Search

    plain = _search(symmetric=True)
    search = Search(SCOPES["reference"], remembered(POLICIES[POLICY]))
    profile = cProfile.Profile()
    profile.runcall(search.run)
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    total = sum(own for _, _, own, _, _ in stats.values())

    def share(file: str, *functions: str) -> float:
        return float(
            sum(
                cumulative
                for (path, _, name), (_, _, _, cumulative, _) in stats.items()
                if str(path).endswith(file) and name in functions
            )
            / total
        )

    shares = {
        "apply (the model)": share("model/system.py", "apply"),
        "judge": share("properties/judge.py", "violations", "events"),
        "encode": share("solver/codec.py", "encode"),
        "decode": share("solver/codec.py", "decode"),
    }
    shares["the rest"] = 1 - sum(shares.values())
    assert isinstance(search.successors, MemoisedSuccessors)
    codes = search.reached.codes
    per_state = sum(map(sys.getsizeof, codes)) / len(codes) + 110
    return {
        "transitions": plain["transitions"],
        "asked": search.successors.computed,
        "per_state": plain["seconds"] / plain["states"] * 1e6,
        "per_transition": plain["seconds"] / plain["transitions"] * 1e6,
        "shares": shares,
        "bytes": per_state,
    }


def _finds(engine: str, policy_name: str) -> dict[str, Any]:
    from model.policies import POLICIES

    policy = POLICIES[policy_name]
    if engine == "explore":
        from solver.explore import explore
        from solver.scopes import SCOPES

        results = explore(policy, SCOPES[FIRST_COUNTEREXAMPLES[policy_name]])
    elif engine == "fuzz":
        from properties.fuzz import PROFILES, fuzz

        results = fuzz(policy, PROFILES["quick"])
    else:
        from properties.verdict import REQUIRED_CELL
        from solver.prove import prove

        results = prove(policy, cells=(REQUIRED_CELL,))
    return {"found": any(r.property == "HIT-RESUME" and r.verdict.value == "VIOLATED" for r in results)}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "symmetric": lambda: _search(symmetric=True),
    "symmetric 7": lambda: _search(symmetric=True, pool=7),
    "symmetric 8": lambda: _search(symmetric=True, pool=8),
    "plain": lambda: _search(symmetric=False),
    "minicheck": _minicheck,
    "inside": _profile,
    **{
        f"{engine} {policy}": lambda engine=engine, policy=policy: _finds(engine, policy)  # type: ignore[misc]
        for engine in ("explore", "fuzz", "prove")
        for policy in FIRST_COUNTEREXAMPLES
    },
}


def _pool() -> int:
    from solver.scopes import SCOPES

    return SCOPES["reference"].configuration.pool_blocks


def _first_line(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "?")


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    raise SystemExit(main())
