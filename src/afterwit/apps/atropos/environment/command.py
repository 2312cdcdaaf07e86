"""`afterwit atropos`: the library's own commands over `AgenticOPDEnv`, in this process."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from afterwit.apps.atropos.environment.env import AgenticOPDEnv
from afterwit.apps.running.logs import log_plainly

UNSAFE = "--unsafe-sandbox"


def run(command: str, arguments: Sequence[str]) -> None:
    """Run `serve`, `process` or `evaluate` with the library's flags. It ends the process with its status."""
    flags = [argument for argument in arguments if argument != UNSAFE]
    log_plainly()
    if len(flags) < len(arguments):
        flags += ["--env.unsafe_sandbox", "true"]
        for handler in logging.getLogger().handlers:
            handler.setFormatter(logging.Formatter(f"%(asctime)s {UNSAFE} %(message)s", datefmt="%H:%M:%S"))
    logging.getLogger("atroposlib.envs.base").setLevel(logging.WARNING)  # its status, ten times a second
    sys.argv = ["afterwit atropos", command, *flags]
    AgenticOPDEnv.cli()
