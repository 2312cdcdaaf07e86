"""Kinds of clients that the binding was made with. Their wordings are the openings that these clients use."""

from __future__ import annotations

from experiments.replay.clients import echo
from experiments.replay.clients.others import OTHERS
from experiments.replay.clients.traits import Kept, Title, Traits, Wordings

HERMES = Traits(
    name="hermes",
    agent="OpenAI/Python 2.24.0",
    system="You are Hermes Agent, an intelligent AI assistant.",
    tools=("terminal", "read_file", "write_file", "memory", "todo", "delegate_task", "skill_view"),
    echo=echo.respelled,
    title=Title.AFTER,
    kept=Kept.ENDS,
    summary_behind=False,
    reviews=0.4,
    subagents=0.05,
    words=Wordings(
        title_system="Generate a short, descriptive title (3-7 words) for this conversation.",
        title="User: {first}\n\nAssistant: I have done so.",
        summary="You are a summarization agent creating a context checkpoint.\n\nTURNS TO SUMMARIZE:\n{all}",
        handoff="[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted into this.\n{summary}",
        review="Review the conversation above and update the skill library.",
    ),
)
OPENCLAW = Traits(
    name="openclaw",
    agent="OpenAI/JS 7.15.0",
    system="You are a personal assistant running inside OpenClaw.",
    tools=("read", "edit", "exec", "cron", "message", "web_search"),
    echo=echo.underscored,
    stamped=True,
    context="<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nNothing runs.\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>",
    kept=Kept.SUFFIX,
    heartbeats=0.3,
    words=Wordings(
        summary_system="You are a context summarization assistant.",
        summary="<conversation>\n{all}\n</conversation>\n\nCreate a structured context checkpoint summary.",
        handoff="The conversation history before this point was compacted into the following summary:\n\n"
        "<summary>\n{summary}\n</summary>",
    ),
)
OPENCODE = Traits(
    name="opencode",
    agent="opencode/1.18.33 ai-sdk/provider-utils/4.0.23",
    system="You are opencode, an interactive CLI tool.",
    tools=("bash", "edit", "glob", "grep", "read", "task", "todowrite", "webfetch", "write"),
    session_header="x-session-id",
    title=Title.BESIDE,
    kept=Kept.NOTHING,
    summary_behind=True,
    summary_tools=False,
    words=Wordings(
        title_system="You are a title generator. You output ONLY a thread title.",
        title="Generate a title for this conversation:\n{first}",
        summary="Provide a detailed prompt for continuing our conversation above.",
        handoff="What did we do so far?\n{summary}",
    ),
)
PI = Traits(
    name="pi",
    agent="pi/0.61 (linux)",
    tools=("read", "bash", "edit", "write"),
    kept=Kept.SUFFIX,
    words=Wordings(
        summary_system="You are a context summarization agent.",
        summary="<conversation>\n{all}\n</conversation>\nUpdate the summary.",
        handoff="The conversation history before this point was compacted into the following summary:\n\n"
        "<summary>\n{summary}\n</summary>",
    ),
)
CODEX = Traits(
    name="codex",
    agent="codex_exec/0.169.0 (Debian 12.0.0; x86_64)",
    dialect="responses",
    tools=("exec_command", "write_stdin", "view_image", "update_plan"),
    opening="<environment_context>\n  <cwd>/home/me</cwd>\n</environment_context>",
    kept=Kept.USERS,
    summary_behind=True,
    summary_tools=False,
    words=Wordings(
        summary="You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary.",
        handoff="Another language model started to solve this problem and produced a summary:\n{summary}",
    ),
)
CLAUDE = Traits(
    name="claude",
    agent="claude-cli/2.1.197 (external, cli)",
    dialect="messages",
    tools=("Bash", "Edit", "Read", "Write", "Grep", "Task"),
    echo=echo.reminded,
    title=Title.BEFORE,
    kept=Kept.NOTHING,
    summary_behind=True,
    subagents=0.05,
    words=Wordings(
        title_system="Analyze if this message indicates a new conversation topic.",
        summary="Your task is to create a detailed summary of the conversation so far.",
        handoff="This session is being continued from a previous conversation.\n{summary}",
    ),
)
MINI_SWE = Traits(
    name="mini-swe",
    agent="OpenAI/Python 2.54.0",
    tools=("bash",),
    streamed=False,
    complains=0.5,
    edits=0.0,
    regenerates=0.0,
    words=Wordings(),
)
SMOLAGENTS = Traits(
    name="smolagents",
    agent="OpenAI/Python 3.52.0",
    tools=("get_weather", "final_answer"),
    streamed=False,
    echo=echo.written_out,
    results_as_words=True,
    regenerates=0.0,
    interrupts=0.0,
    words=Wordings(),
)
SDK = Traits(
    name="sdk",
    agent="AsyncOpenAI/Python 2.20.0",
    system="You are a helpful assistant.",
    tools=(),
    title=Title.AFTER,
    words=Wordings(title="### Task:\nGenerate a concise, 3-5 word title\n### Chat History:\n{all}"),
)
KNOWN = (HERMES, OPENCLAW, OPENCODE, PI, CODEX, CLAUDE, MINI_SWE, SMOLAGENTS, SDK, *OTHERS)
