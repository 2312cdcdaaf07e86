"""The tools an agent has in the tools world, as OpenAI function schemas kept short for a small context."""

from typing import Any

SYSTEM = "You work in /work."


def _tool(name: str, **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = (
    _tool("read", path="string"),
    _tool("edit", path="string", old="string", new="string"),
    _tool("write", path="string", text="string"),
    _tool("copy", path="string", to="string"),
    _tool("delete", path="string", dry_run="boolean"),
    _tool("run", command="string"),
)
