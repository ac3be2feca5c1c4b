"""From what `--policy` says to a policy: a shipped name, or FILE.py:NAME (a class or an instance)."""

from __future__ import annotations

import copy
import inspect
import re
import sys
import traceback
import types
from pathlib import Path
from typing import Any

from model.errors import PolicyError
from model.policies import ADJUSTED, DEFAULT_POLICY, POLICIES, PROPOSED
from model.policy import Answer, Policy

LIST_SHAPED: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {
    "claims": (("children",), frozenset({"claim_start", "claim_step", "claim_end"})),
    "choose": (("answers",), frozenset({"choose_start", "choose_step"})),
}
"""A part over a whole list -> its parameters, and the parts of the fold in whose place it may stand."""

FUNCTIONS = tuple(part for part, kind in vars(Policy).items() if inspect.isfunction(kind) and not part.startswith("_"))
"""The parts of a policy that are functions."""

LATEST = "latest"
"""Another name for the newest release."""

SHIPPED = {**POLICIES, **ADJUSTED}

DERIVE = "derive from model.policies.vllm.Vllm028 to change only what differs"


def load_policy(asked: str) -> Policy:
    """The policy that `asked` names; raises PolicyError.

    A policy from a file that has no name of its own is called `asked`.
    """
    if asked == LATEST:
        return POLICIES[DEFAULT_POLICY]
    if asked in SHIPPED:
        return SHIPPED[asked]
    if asked in PROPOSED:
        return PROPOSED[asked]
    file, colon, name = asked.rpartition(":")
    if not colon or not file.endswith(".py"):
        shipped = ", ".join((*SHIPPED, LATEST))
        raise PolicyError(f"--policy {asked}: no such policy; use one of {shipped}, or FILE.py:NAME")
    found = _attribute(_run_file(Path(file)), file, name)
    if inspect.isroutine(found):
        raise PolicyError(f"{_place(found, file)}: {name} is a function; name a class or an instance of one")
    policy = _instance(found, file, name) if isinstance(found, type) else copy.copy(found)
    _check_parts(policy, file, name)
    if getattr(policy, "name", None) in {None, *SHIPPED}:
        _set_name(policy, asked)
    return policy  # type: ignore[no-any-return]


def _run_file(path: Path) -> types.ModuleType:
    """Run the file as a module. Its bytecode is never cached: an edited policy must not be judged by its old text."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise PolicyError(f"{path}: cannot be read ({error.strerror}); --policy takes FILE.py:NAME") from None
    module = types.ModuleType(f"hitbound_policy_file_{re.sub(r'[^0-9A-Za-z]', '_', str(path.resolve()))}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    directory = str(path.resolve().parent)
    if directory not in sys.path:
        sys.path.append(directory)
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except SyntaxError as error:
        raise PolicyError(f"{error.filename}:{error.lineno}: {error.msg}; correct the file") from None
    except (Exception, SystemExit) as error:
        raise PolicyError(
            f"{_line_in(path, error)}: importing the file raised {_named(error)}; make it importable"
        ) from None
    return module


def _attribute(module: types.ModuleType, file: str, name: str) -> Any:
    if name in vars(module):
        return vars(module)[name]
    candidates = [
        found
        for found, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__ and hasattr(value, "settle")
    ]
    advice = f"it has {', '.join(candidates)}" if candidates else "it defines no class with the parts of a policy"
    raise PolicyError(f"{file}: there is no `{name}` in this file; {advice}")


def _instance(kind: type, file: str, name: str) -> Any:
    try:
        return kind()
    except (Exception, SystemExit) as error:
        raise PolicyError(
            f"{_line_in(Path(file), error)}: {name}() raised {_named(error)}; a policy class takes no arguments"
        ) from None


def _check_parts(policy: Any, file: str, name: str) -> None:
    place = _place(policy, file)
    wanted = {part: _parameters(part) for part in FUNCTIONS}
    replaced: frozenset[str] = frozenset()
    for part, (parameters, fold) in LIST_SHAPED.items():
        if hasattr(policy, part):
            wanted[part] = parameters
            replaced |= fold
    for part, parameters in wanted.items():
        if part not in replaced:
            _check_function(policy, part, parameters, f"{place}: {name}")
    if "claim_start" not in replaced and not hasattr(policy, "claim_start"):
        raise PolicyError(f"{place}: {name} lacks `claim_start`, a composite's claim before its first child; add it")
    if "choose_start" not in replaced and not isinstance(getattr(policy, "choose_start", None), Answer):
        raise PolicyError(f"{place}: {name} needs `choose_start`, a model.policy.Answer (usually NOTHING); {DERIVE}")


def _check_function(policy: Any, part: str, parameters: tuple[str, ...], where: str) -> None:
    signature = f"{part}({', '.join(parameters)})"
    function = getattr(policy, part, None)
    if function is None:
        raise PolicyError(f"{where} lacks `{signature}`; add it, or {DERIVE}")
    if not callable(function):
        raise PolicyError(f"{where}: `{part}` is a {type(function).__name__}, not a function; write `{signature}`")
    try:
        inspect.signature(function).bind(*parameters)
    except TypeError as error:
        raise PolicyError(f"{_place(function, where)}: `{part}` {error}; write `{signature}`") from None
    except ValueError:
        return  # a builtin without a signature: calling it will tell


def _parameters(part: str) -> tuple[str, ...]:
    return tuple(inspect.signature(getattr(Policy, part)).parameters)[1:]


def _place(thing: Any, otherwise: str) -> str:
    """FILE:LINE of what was defined in a file, else `otherwise`."""
    target = thing if inspect.isroutine(thing) or inspect.isclass(thing) else type(thing)
    try:
        return f"{inspect.getsourcefile(target)}:{inspect.getsourcelines(target)[1]}"
    except (OSError, TypeError):
        return otherwise


def _line_in(path: Path, error: BaseException) -> str:
    """FILE:LINE of the last frame that is in `path`; the raising frame itself may be in a library."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _set_name(policy: Any, name: str) -> None:
    try:
        policy.name = name
    except (AttributeError, TypeError):
        raise PolicyError(f"{name}: its `name` cannot be set; give the class a `name` of its own") from None
