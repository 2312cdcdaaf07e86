"""More kinds of clients that only measure: agents and applications as they are met in the field."""

from __future__ import annotations

from experiments.replay.clients import echo
from experiments.replay.clients.traits import Kept, Title, Traits, Wordings

EDITOR = Traits(
    name="editor",
    agent="editor-agent/3.2",
    system="You are a software engineer with many tools, which you call by writing XML.",
    tools=("read_file", "write_to_file", "execute_command", "attempt_completion"),
    calls_as_words=True,
    results_as_words=True,
    echo=echo.truncated,
    words=Wordings(),
)
DESK = Traits(
    name="desk",
    agent="desk/1.30",
    tools=("shell", "text_editor", "todo_write", "extension_search"),
    echo=echo.informed,
    title=Title.BESIDE,
    kept=Kept.NOTHING,
    switches=0.2,
    words=Wordings(
        title_system="Describe what the person wants to do in four words or fewer.",
        title="{first}",
        summary_system="A context limit was reached while the agent and its user worked.",
        summary="Conversation history:\n{all}",
        handoff="Your context was compacted. The summary of it:\n{summary}\nGo on with the task.",
    ),
)
ROLLING = Traits(
    name="rolling",
    agent="graph-agent/0.6",
    system="You answer questions about invoices.",
    tools=("lookup", "convert", "file"),
    streamed=False,
    kept=Kept.INSTRUCTED,
    words=Wordings(
        summary_system="You update a running summary of a conversation. Keep key facts and decisions.",
        summary="Previous summary:\n(none)\n\nFold in the following messages:\n{all}",
        handoff="Summary of what was said earlier: {summary}",
    ),
)
ROLLING_BEHIND = Traits(
    name="rolling-behind",
    agent="graph-memory/1.0",
    system="You plan journeys.",
    tools=("trains", "hotels", "weather"),
    kept=Kept.INSTRUCTED,
    summary_behind=True,
    summary_tools=False,
    words=Wordings(
        summary="Create a summary of the conversation above:",
        handoff="Summary of conversation earlier: {summary}",
    ),
)
SPEAKER = Traits(
    name="speaker",
    agent="GeminiCLI/0.9.0",
    tools=("read_file", "replace", "run_shell_command", "glob"),
    reviews=0.4,
    review_tools=False,
    kept=Kept.SUFFIX,
    words=Wordings(
        review="Analyze *only* the content and structure of your immediately preceding response. Based on it,"
        " determine who should logically speak next: the 'user' or the 'model'. Answer in JSON.",
        summary_system="You are the component that distils an overly long history into a state snapshot.",
        summary="{all}\n\nFirst, reason in your scratchpad. Then, generate the <state_snapshot>.",
        handoff="<state_snapshot>\n{summary}\n</state_snapshot>",
    ),
)
SUGGESTER = Traits(
    name="suggester",
    agent="suggester-cli/2.2",
    dialect="messages",
    tools=("Bash", "Edit", "Read", "Write", "Grep"),
    echo=echo.reminded,
    title=Title.BEFORE,
    reviews=0.4,
    subagents=0.05,
    kept=Kept.NOTHING,
    summary_behind=True,
    words=Wordings(
        title_system="Generate a succinct title for a coding session from its first message. Return JSON.",
        title="<session>\n{first}\n</session>",
        review="[SUGGESTION MODE: Suggest what the user might naturally type next into the terminal. Reply"
        " with the suggestion alone, in two to twelve words, and use no tools.]",
        summary="CRITICAL: answer with text only. Write a detailed account of this conversation for whoever"
        " continues the work.",
        handoff="This session goes on from an earlier one that ran out of context.\n{summary}",
    ),
)
CONDENSER = Traits(
    name="condenser",
    agent="OpenHands-SDK/1.7",
    tools=("terminal", "file_editor", "task_tracker", "finish"),
    echo=echo.respelled,
    kept=Kept.ENDS,
    complains=0.1,
    words=Wordings(
        summary="You are maintaining a context-aware state summary for an interactive agent.\n\n"
        "<PREVIOUS SUMMARY>\n</PREVIOUS SUMMARY>\n\n{all}\n\nNow summarize the events.",
        handoff="{summary}",
    ),
)
WORKBENCH = Traits(
    name="workbench",
    agent="workbench/0.9",
    dialect="responses",
    system="You help in a workbench of a laboratory.",
    tools=("measure", "plot", "store"),
    title=Title.AFTER,
    title_behind=True,
    session_header="session_id",
    regenerates=0.15,
    edits=0.15,
    words=Wordings(title="Please write a headline of at most six words for this chat. No quotes."),
)
FRAMEWORK = Traits(
    name="framework",
    agent="pydantic-ai/1.20",
    system="Extract what the person wants.",
    tools=("find", "final_result"),
    streamed=False,
    echo=echo.underscored,
    interrupts=0.0,
    retries=0.15,
    words=Wordings(),
)
FOLLOWER = Traits(
    name="follower",
    agent="webchat/0.6",
    system="You are a helpful assistant.",
    tools=(),
    title=Title.AFTER,
    reviews=0.4,
    review_tools=False,
    words=Wordings(
        title="Name this chat in 3-5 words with an emoji:\n<chat_history>\n{all}\n</chat_history>",
        review="Suggest three questions that the user may ask next about this chat, as a JSON list.",
    ),
)
NUMBERER = Traits(
    name="numberer",
    agent="numberer-python/3.1",
    system="You keep notes for a person.",
    tools=("run_command", "fetch"),
    streamed=False,
    echo=echo.numbered,
    words=Wordings(),
)
CONDUCTOR = Traits(
    name="conductor",
    agent="conductor/1.15",
    system="You are a researcher. Your goal is to answer what you are asked.",
    tools=("search", "read_page"),
    streamed=False,
    echo=echo.answers_only,
    interrupts=0.0,
    words=Wordings(),
)
FIELD = (
    EDITOR,
    DESK,
    ROLLING,
    ROLLING_BEHIND,
    SPEAKER,
    SUGGESTER,
    CONDENSER,
    WORKBENCH,
    FRAMEWORK,
    FOLLOWER,
    NUMBERER,
    CONDUCTOR,
)
