"""Common parts of the drivers: the command line, the tool that they really run, the history between runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

URL, HISTORY, MESSAGES = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
ROOT = URL.removesuffix("/v1")
SYSTEM = "You keep notes for a person."
DESCRIPTION = "Run a command in the working folder, and return what it prints."
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


def run_command(command: str) -> str:
    """Run a command in the working folder, and return what it prints."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout


def history() -> list[Any]:
    """The conversation so far; empty in the first run."""
    return json.loads(HISTORY.read_text()) if HISTORY.exists() else []


def keep(conversation: list[Any]) -> None:
    HISTORY.write_text(json.dumps(conversation))
