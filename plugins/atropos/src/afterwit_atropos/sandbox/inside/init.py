"""Process 1 of a box: serves the program outside, one line of JSON for each request and answer.

It cannot be killed from within, since it is process 1 of its namespace, nor read, since it hides. Without
isolation it is an ordinary process. It ends with its input, and everything in the box with it.

    python -m inside.init ROOT [--uid UID | --unsafe]
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import Any

from .commands import Command
from .files import Files
from .filter import DEATH_SIGNAL, DUMPABLE, SUBREAPER, deny_calls, prctl


class Init:
    """The requests, by name."""

    def __init__(self, root: str) -> None:
        self._files = Files(root)
        self._talking: Command | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request: `error` is set if it could not be done."""
        asked = request.pop("do")
        try:
            match asked:
                case "run":
                    running = Command(**request)
                    try:
                        return running.finish()
                    finally:
                        running.end()
                case "start":
                    self._talking = Command(**request, talks=True)
                case "ask":
                    return self._talking.ask(**request) if self._talking else {"ended_for": "exit"}
                case "stop":
                    if self._talking:
                        self._talking.end()
                    self._talking = None
                case "read":
                    return {"text": self._files.read(**request)}
                case "write":
                    self._files.write(**request)
                case _:
                    return {"error": f"nothing known as {asked}"}
        except (OSError, ValueError) as error:
            return {"error": str(error)}
        return {}


def main() -> None:
    """Serve requests until the input ends."""
    root, *options = sys.argv[1:]  # argparse would double the time to start
    if options == ["--unsafe"]:
        with contextlib.suppress(OSError, AttributeError):  # macOS has no prctl
            prctl(SUBREAPER, 1)
    else:
        _confine(int(options[1]) if options else None)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # process 1 ignores signals without a handler
    os.chdir(root)
    init = Init(root)
    print(json.dumps({"ready": os.getpid()}), flush=True)
    for line in sys.stdin.buffer:
        print(json.dumps(init.answer(json.loads(line))), flush=True)
    init.answer({"do": "stop"})


def _confine(uid: int | None) -> None:
    if os.getpid() != 1:
        raise OSError(f"this is process {os.getpid()}, not process 1 of a namespace of its own")
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    if os.getuid() == 0:
        raise OSError("this is root: a box needs a user of its own")
    prctl(DEATH_SIGNAL, signal.SIGKILL)  # the change of user took it back
    deny_calls()
    prctl(DUMPABLE, 0)


if __name__ == "__main__":
    main()
