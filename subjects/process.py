"""Our side of the subject's process: start it, send commands, and take whatever it does as an observation."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import attrs

from model.errors import HitboundError

DRIVER = Path(__file__).with_name("driver.py")
PROTOCOL = 2
START_SECONDS = 300.0
REPLY_SECONDS = 60.0


def cache_directory() -> Path:
    """Where everything of subjects is kept: HITBOUND_CACHE, else a folder in the user's cache directory."""
    named = os.environ.get("HITBOUND_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hitbound"


class SubjectUnavailable(HitboundError):
    """The subject cannot be started: no interpreter, no tree, or an import that fails."""


@attrs.frozen
class Subject:
    """A vLLM release: the interpreter that runs it, and the source tree that is put on its path."""

    interpreter: Path
    tree: Path

    def environment(self) -> dict[str, str]:
        """The environment of the process: no network, no GPU, and a cache of its own for each release."""
        # Without compiled bytecode each start takes twice as long.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {
            **kept,
            "PYTHONPATH": str(self.tree),
            "PYTHONSAFEPATH": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CACHE_ROOT": str(cache_directory() / "models" / self.tree.name),
            "CUDA_VISIBLE_DEVICES": "",
        }


@attrs.frozen
class Failure:
    """What the subject did instead of answering.

    `kind` is the class of its exception, or `crash`, `hang`, `garbage` or `version` if it did not even report one.
    """

    kind: str
    message: str
    traceback: str = ""


Reply = dict[str, Any] | Failure
"""The state after a command, or what went wrong. Only after an exception the process still lives."""


class SubjectProcess:
    """One long-lived driver. Use it as a context manager."""

    def __init__(self, subject: Subject, *, driver: Path = DRIVER, reply_seconds: float = REPLY_SECONDS) -> None:
        self._command = (str(subject.interpreter), str(driver))
        self._subject = subject
        self._reply_seconds = reply_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._written: IO[bytes] | None = None
        self.release = ""

    def __enter__(self) -> SubjectProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the driver and wait until vLLM is imported. Raises SubjectUnavailable."""
        self.stop()
        self._written = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `stop`)
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._written,
                env=self._subject.environment(),
                cwd=self._subject.tree,
            )
        except OSError as error:
            self.stop()
            raise SubjectUnavailable(f"cannot start {self._command[0]} in {self._subject.tree}: {error}") from None
        reply = self._read(START_SECONDS)
        if isinstance(reply, Failure):
            raise SubjectUnavailable(f"{self._subject.tree} does not start: {reply.message}\n{reply.traceback}")
        self.release = str(reply.get("ready", ""))

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        process, self._process, self._pending = self._process, None, b""
        if process is not None:
            process.kill()
            process.wait()
        for stream in (process and process.stdin, process and process.stdout, self._written):
            if stream:
                stream.close()
        self._written = None

    def processor_seconds(self) -> float:
        """Processor time that the process has taken; 0 where it does not run, or the system does not say."""
        try:
            fields = (
                Path(f"/proc/{self._process.pid if self._process else 0}/stat").read_text().rpartition(")")[2].split()
            )
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self, do: str, **arguments: Any) -> Reply:
        """Send one command and wait for its reply. The process is started again if the last command ended it."""
        return self._send(do, arguments) or self._reply()

    def run(self, commands: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[Reply]:
        """Send `commands` to be executed in turn, at once; the replies, each of which tells only what has changed.

        A failure is the last reply. Ask for nothing else before all replies were taken.
        """
        failed = self._send("run", {"commands": commands})
        return iter((failed,)) if failed else self._replies(len(commands))

    def _replies(self, count: int) -> Iterator[Reply]:
        for _ in range(count):
            reply = self._reply()
            yield reply
            if isinstance(reply, Failure):
                return

    def _send(self, do: str, arguments: dict[str, Any]) -> Failure | None:
        if self._process is None:
            self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        line = json.dumps({"protocol": PROTOCOL, "do": do, **arguments}) + "\n"
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except OSError:
            return self._crashed()
        return None

    def _reply(self) -> Reply:
        reply = self._read(self._reply_seconds)
        if isinstance(reply, Failure):
            return reply
        if "error" in reply:
            error = reply["error"]
            return Failure(str(error["type"]), str(error["message"]), str(error["traceback"]))
        state = reply.get("state")
        return state if isinstance(state, dict) else self._unreadable(f"a reply without a state: {reply}")

    def _read(self, seconds: float) -> Reply:
        """The next message, or why there is none."""
        assert self._process is not None
        assert self._process.stdout is not None
        if b"\n" not in self._pending:
            stopped = self._wait_for_a_line(self._process.stdout, seconds)
            if stopped is not None:
                return stopped
        line, _, self._pending = self._pending.partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError:
            return self._unreadable(line[:200].decode(errors="replace"))
        if not isinstance(message, dict) or "protocol" not in message:
            return self._unreadable(f"not a message: {message}")
        if message["protocol"] != PROTOCOL:
            self.stop()
            version = message["protocol"]
            return Failure("version", f"the driver speaks protocol version {version}, this hitbound {PROTOCOL}")
        return message

    def _wait_for_a_line(self, stream: IO[bytes], seconds: float) -> Failure | None:
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(seconds):
                    self.stop()
                    return Failure("hang", f"no reply within {seconds:.0f} s")
                received = os.read(stream.fileno(), 1 << 16)
                if not received:
                    return self._crashed()
                self._pending += received
        return None

    def _crashed(self) -> Failure:
        """The process ended by itself; what it last wrote to standard error tells why."""
        assert self._process is not None
        assert self._written is not None
        self._process.kill()
        code = self._process.wait()
        self._written.seek(0)
        written = self._written.read().decode(errors="replace")
        self.stop()
        return Failure("crash", f"the process ended with code {code}", "\n".join(written.splitlines()[-20:]))

    def _unreadable(self, text: str) -> Failure:
        self.stop()
        return Failure("garbage", text)
