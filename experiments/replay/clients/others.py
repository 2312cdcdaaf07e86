"""More kinds of clients that the binding was made with: mistakes on them led to rules."""

from __future__ import annotations

from experiments.replay.clients import echo
from experiments.replay.clients.traits import Kept, Title, Traits, Wordings

CRUSH = Traits(
    name="crush",
    agent="Charm-Crush/0.4",
    tools=("bash", "edit", "glob", "grep", "ls", "view", "write"),
    echo=echo.respelled,
    title=Title.BESIDE,
    kept=Kept.NOTHING,
    summary_behind=True,
    summary_tools=False,
    words=Wordings(
        title_system="You will generate a short title based on the first message of a conversation.",
        title="Generate a concise title for the following content:\n\n{first}\n <think>\n\n</think>",
        summary="Provide a detailed summary of our conversation above.",
        handoff="The previous session was interrupted because it got too long. Its summary:\n{summary}",
    ),
)
ZED = Traits(
    name="zed",
    agent="Zed/0.210.0 (linux; x86_64)",
    tools=("read_file", "edit_file", "terminal", "grep", "find_path"),
    title=Title.AFTER,
    title_behind=True,
    words=Wordings(title="Generate a concise 3-7 word title for this conversation, omitting punctuation."),
)
GOOSE = Traits(
    name="goose",
    agent="goose/1.9",
    tools=("shell", "text_editor", "todo_write"),
    echo=echo.cleared,
    title=Title.AFTER,
    kept=Kept.NOTHING,
    words=Wordings(
        title_system="Reply with only a description in four words or less",
        title="Here are the first few user messages:\n{first}\n\nBased on the conversation so far, provide a"
        " concise description of this session in 4 words or less.",
        summary_system="## Task Context\n- An llm context limit was reached in a working session.",
        summary="Here is what was said:\n{all}",
        handoff="Your context was compacted. What came before:\n{summary}",
    ),
)
CHAT_APP = Traits(
    name="chat-app",
    agent="LibreChat/0.8",
    system="You are a friendly assistant.",
    tools=(),
    echo=echo.windowed,
    title=Title.AFTER,
    words=Wordings(
        title="Provide a concise, 5-word-or-less title for the conversation.\nConversation:\n{all}"
    ),
)
ROO = Traits(
    name="roo",
    agent="RooCode/3.30",
    tools=("read_file", "apply_diff", "execute_command", "attempt_completion"),
    echo=echo.detailed,
    kept=Kept.NOTHING,
    summary_behind=True,
    summary_tools=False,
    words=Wordings(
        summary="Summarize the conversation so far, as described in the prompt instructions.",
        handoff="# Where we stand\n{summary}",
    ),
)
COPILOT = Traits(
    name="copilot",
    agent="GitHubCopilotChat/0.32",
    tools=("read_file", "apply_patch", "run_in_terminal", "semantic_search"),
    title=Title.BEFORE,
    kept=Kept.USERS,
    words=Wordings(
        title_system="You are an expert in crafting pithy titles for chatbot conversations.",
        title="Please write a brief title for the following request:\n\n{first}",
        summary_system="Your task is to create a comprehensive, detailed summary of the entire conversation.",
        summary="{all}\n\nSummarize it.",
        handoff="<conversation-summary>\n{summary}\n</conversation-summary>",
    ),
)
NOTEKEEPER = Traits(
    name="notekeeper",
    agent="notekeeper/2",
    tools=("read", "write", "run", "note"),
    session_header="x-session-id",
    echo=echo.underscored,
    reviews=0.3,
    kept=Kept.ENDS,
    summary_elsewhere=True,
    words=Wordings(
        review="Look back over this session and write down what should be remembered in later ones.",
        handoff="[Earlier messages were left out. What they said:]\n{summary}",
    ),
)
OUTSOURCER = Traits(
    name="outsourcer",
    agent="outsourcer/1.0",
    tools=("read", "write", "run"),
    echo=echo.respelled,
    kept=Kept.USERS,
    summary_elsewhere=True,
    subagents=0.1,
    words=Wordings(handoff="A colleague worked on this before you and left these notes:\n{summary}"),
)
OTHERS = (CRUSH, ZED, GOOSE, CHAT_APP, ROO, COPILOT, NOTEKEEPER, OUTSOURCER)
