"""The errands of every client, and the model that runs them: a script in place of weights.

Like a model, the script sees the prompt's ids, and decides by their text: which tools are offered, the
person's last message, and whether the tool has answered since.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from afterwit.chat_format.render import Renderer


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """One request of the person: a command, and the answer when it is done."""

    asked: str
    command: str
    result: str
    """The command's output, or its end."""
    answer: str
    note: str = "plum\n"
    """The contents of the file afterwards."""


ERRANDS = (
    Errand(
        asked="Please keep the word plum in the file note.txt.",
        command="echo plum > note.txt; echo kept it",
        result="kept it",
        answer="The word is in note.txt now.",
    ),
    Errand(
        asked="Which word does note.txt hold? Look it up.",
        command="cat note.txt",
        result="plum",
        answer="It holds the word plum, as you asked.",
    ),
    Errand(
        asked="Add the word pear beneath it, and show me the file.",
        command="echo pear >> note.txt; cat note.txt",
        result="pear",
        answer="The file lists plum and pear.",
        note="plum\npear\n",
    ),
)
SHELLS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "exec_command": lambda command: {"cmd": command},
    "shell": lambda command: {"command": ["bash", "-c", command]},
    "shell_command": lambda command: {"command": command},
    "terminal": lambda command: {"command": command},
    "exec": lambda command: {"command": command},
    "bash": lambda command: {"command": command, "description": "Keep a note"},
    "Bash": lambda command: {"command": command, "description": "Keep a note"},
    "run_command": lambda command: {"command": command},
    "run_shell_command": lambda command: {"command": command, "is_background": False},
}
"""The tool that runs a command, by the name that a client gives it, and how it takes the command."""
TITLE = "A note about fruit"
NOTHING = "There is nothing else to do."


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """A message as the model reads it."""

    role: str
    text: str

    @property
    def tool_result(self) -> bool:
        return self.text.startswith("<tool_response>")


@dataclass(slots=True, kw_only=True)
class ScriptedModel:
    """Forced decoding. `said` holds every response, in order."""

    renderer: Renderer
    respond: Callable[[str], str]
    """The response to a rendered prompt."""
    said: list[str] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)

    def __call__(self, prompt_ids: tuple[int, ...]) -> Sequence[int]:
        prompt = self.renderer.decode(prompt_ids)
        self.prompts.append(prompt)
        self.said.append(self.respond(prompt))
        return self.renderer.encode(self.said[-1])


def response_to(prompt: str) -> str:
    """The model's response to a prompt."""
    messages, tools = messages_of(prompt), tools_of(prompt)
    shell = next((name for name in SHELLS if name in tools), None)
    found = _last_errand(messages)
    if shell is None or found is None:
        return TITLE
    at, errand = found
    since = messages[at + 1 :]
    if any(message.role == "assistant" and errand.answer in message.text for message in since):
        return NOTHING
    if any(message.tool_result for message in since):
        return f"<think>\nThe tool has answered.\n</think>\n\n{errand.answer}"
    call = json.dumps({"name": shell, "arguments": SHELLS[shell](errand.command)})
    return f"<think>\nA command does it.\n</think>\n\n<tool_call>\n{call}\n</tool_call>"


def messages_of(prompt: str) -> list[Spoken]:
    """The messages of a rendered prompt, without the response that it opens."""
    found = re.findall(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", prompt, re.DOTALL)
    return [Spoken(role=role, text=text.strip()) for role, text in found]


def tools_of(prompt: str) -> set[str]:
    """The names of the tools that a rendered prompt offers."""
    block = prompt.partition("XML tags:\n<tools>\n")[2].partition("\n</tools>")[0]
    return {json.loads(line)["function"]["name"] for line in block.splitlines()}


def _last_errand(messages: Sequence[Spoken]) -> tuple[int, Errand] | None:
    for at in reversed(range(len(messages))):
        message = messages[at]
        if message.role != "user" or message.tool_result:
            continue
        for errand in ERRANDS:
            if errand.asked in message.text:
                return at, errand
    return None
