"""Kinds of clients that the binding was not made with: they only measure. No rule was chosen by these."""

from __future__ import annotations

from experiments.replay.clients import echo
from experiments.replay.clients.traits import Kept, Title, Traits, Wordings

HANDS = Traits(
    name="hands",
    agent="OpenHands/1.2",
    tools=("execute_bash", "str_replace_editor", "browser", "think", "finish"),
    echo=echo.respelled,
    title=Title.BESIDE,
    kept=Kept.ENDS,
    words=Wordings(
        title_system="You are a helpful assistant that generates concise, descriptive titles.",
        title="Generate a title (maximum 50 characters) for what starts with this:\n\n{first}",
        summary="You are maintaining a context-aware state summary for an agent.\n<EVENTS>\n{all}\n</EVENTS>",
        handoff="<CONTEXT SUMMARY>\n{summary}",
    ),
)
MOON = Traits(
    name="moon",
    agent="KimiCLI/0.60",
    tools=("Shell", "ReadFile", "WriteFile", "Glob", "Grep", "Task"),
    title=Title.AFTER,
    kept=Kept.SUFFIX,
    subagents=0.05,
    words=Wordings(
        title_system="Name the session in at most six words.",
        title="{first}",
        summary_system="You are tasked with compacting a coding context.",
        summary="## Messages\n{all}\n\nCompact the above.",
        handoff="<system>Previous context has been compacted. Here is the output:</system>\n{summary}",
    ),
)
CHAIN = Traits(
    name="chain",
    agent="langchain-openai/1.1",
    tools=("search", "fetch", "calculate"),
    streamed=False,
    echo=echo.underscored,
    kept=Kept.SUFFIX,
    words=Wordings(
        summary="<role>\nContext Extraction Assistant\n</role>\n<messages>\n{all}\n</messages>",
        handoff="Here is a summary of the conversation to date:\n\n{summary}",
    ),
)
CHERRY = Traits(
    name="cherry",
    agent="CherryStudio/1.7",
    system="You answer briefly.",
    tools=(),
    title=Title.AFTER,
    words=Wordings(
        title_system="Summarize the conversation into a title in English within 10 characters.",
        title="{all}",
    ),
)
KIOSK = Traits(
    name="kiosk",
    agent="kiosk/3",
    system="You answer the visitors of a museum.",
    tools=(),
    echo=echo.windowed,
    session_header="x-session-affinity",
    words=Wordings(),
)
GERMAN = Traits(
    name="german",
    agent="Werkstatt/2.0",
    tools=("lesen", "schreiben", "suchen", "starten"),
    echo=echo.respelled,
    title=Title.BEFORE,
    kept=Kept.NOTHING,
    words=Wordings(
        title_system="Gib dem folgenden Auftrag eine kurze Überschrift.",
        title="{first}",
        summary_system="Du fasst lange Sitzungen zusammen.",
        summary="{all}",
        handoff="Bisher geschah:\n{summary}",
    ),
)
KEEPER = Traits(
    name="keeper",
    agent="keeper/1.4",
    dialect="messages",
    tools=("Read", "Write", "Bash", "Recall", "Store"),
    echo=echo.reminded,
    reviews=0.3,
    kept=Kept.NOTHING,
    summary_behind=True,
    words=Wordings(
        review="You have a quiet moment. Reflect on this conversation: which facts about the person are new?"
        " Store each of them with the Store tool, or say that there are none.",
        summary="The context is nearly full. Write a handoff of the whole session for yourself: goals, files,"
        " decisions, open ends. It replaces everything above.",
        handoff="You wrote this before your context was cleared:\n{summary}",
    ),
)
STEERED = Traits(
    name="steered",
    agent="steered/0.9",
    dialect="responses",
    tools=("exec", "apply", "plan"),
    opening="<environment_context>\n  <cwd>/srv</cwd>\n</environment_context>",
    session_header="session-id",
    kept=Kept.USERS,
    summary_behind=True,
    summary_tools=False,
    interrupts=0.3,
    words=Wordings(
        summary="Stop here and write down where the work stands.",
        handoff="Notes of your predecessor:\n{summary}",
    ),
)
TIDY = Traits(
    name="tidy",
    agent="tidy-agent/5",
    tools=("open", "save", "list", "grep", "make"),
    echo=echo.cleared,
    stamped=True,
    retries=0.15,
    regenerates=0.15,
    edits=0.15,
    words=Wordings(),
)
UNSEEN = (HANDS, MOON, CHAIN, CHERRY, KIOSK, GERMAN, KEEPER, STEERED, TIDY)
