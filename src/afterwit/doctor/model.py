"""Self-tests of the model's files: template, tokenizer, sampling, the empty hint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from afterwit.chat_format.families import AUTO, NO_CALLS, convention_of, unknown_template
from afterwit.chat_format.folder import read_json
from afterwit.chat_format.render import Renderer, tokenizer_hash
from afterwit.checkpoints.versions import Versions
from afterwit.doctor.finding import Finding, expect, tested
from afterwit.judging.hinted_prompts import Placement, splice
from afterwit.turn import Conversation, Message

SAMPLE = Conversation(
    messages=(
        Message(role="system", content="You are a careful assistant."),
        Message(role="user", content="Rename the file notes.txt to todo.txt."),
    )
)

HINT = "Look whether todo.txt exists before you rename anything onto it."


def check_model(
    folder: Path,
    renderer: Callable[[], Renderer],
    versions: Versions,
    placement: Placement,
    tool_call_parser: str = AUTO,
) -> Iterator[Finding]:
    """Every test of the model's files; only the first if their template does not render."""
    chat = "use a chat model, or add a chat_template.jinja"
    yield (template := tested("template", _template, renderer, remedy=chat))
    if not template.ok:
        return
    yield tested("tool calls", _tool_calls, renderer, tool_call_parser, remedy=chat)
    changes = "the template changes an unchanged conversation: report it with the model's name"
    yield tested("sampling", _sampling, folder, remedy=chat)
    yield tested("empty hint", _empty_hint, renderer, placement, remedy=changes)
    other = (
        "if this home was made with another model, name another --home; if a version is damaged, "
        "`afterwit rollback` returns to one before it"
    )
    yield tested("tokenizer", _same_tokenizer, folder, renderer, versions, remedy=other)


def _template(renderer: Callable[[], Renderer]) -> str:
    ids = renderer().prompt_ids(SAMPLE)
    return f"renders; a short conversation has {len(ids)} tokens"


def _tool_calls(renderer: Callable[[], Renderer], name: str) -> str:
    """How calls are read. A model that makes none can be served and trained as any other."""
    template = renderer().template_source
    convention = convention_of(template, name)
    if convention is NO_CALLS and name == AUTO:
        return unknown_template(template)
    how = "the chat template teaches" if name == AUTO else "gateway.tool_call_parser sets"
    return f"are read as {how}: {convention.name}"


def _sampling(folder: Path) -> str:
    """The temperature of requests without one: truncation by the model's own choice would blur the gap to a
    teacher, and its penalties would keep turns from training."""
    config = read_json(folder / "generation_config.json")
    own = [f"{name} {config[name]}" for name in ("temperature", "top_p", "top_k", "min_p") if name in config]
    plain = "a request without a temperature is answered at 1"
    if not own:
        return plain
    return f"{plain}; the model suggests {', '.join(own)}: send these, or set gateway.force_temperature"


def _empty_hint(renderer: Callable[[], Renderer], placement: Placement) -> str:
    ids = renderer().prompt_ids
    plain = ids(SAMPLE)
    empty, hinted = (ids(splice(SAMPLE, hint, placement)) for hint in ("", HINT))
    expect(ids(SAMPLE) == plain, "rendering twice gives different ids")
    expect(empty == plain, "an empty hint changes the prompt's ids")
    expect(hinted != plain, "a hint leaves the prompt's ids as they were")
    return "leaves the prompt's ids as they are, and a real one does not"


def _same_tokenizer(folder: Path, renderer: Callable[[], Renderer], versions: Versions) -> str:
    teacher = renderer().tokenizer_hash
    newest = versions.weights(max((n for n in versions.numbers() if versions.has_weights(n)), default=0))
    expect(tokenizer_hash(newest) == teacher, f"the tokenizer of {newest} is not the one of {folder}")
    return f"student and teacher share {teacher[:12]}"
