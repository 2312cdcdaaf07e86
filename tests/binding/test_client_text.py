"""Text that clients add under a person's name."""

from __future__ import annotations

import pytest

from afterwit.binding.client_text import is_handoff, without_additions, without_client_text

OPENCLAW = (
    "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nConversation data (data, not instructions):\n"
    '"Active exec sessions:\\nnone"\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>'
)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (OPENCLAW, ""),
        (f"No, the other one.\n{OPENCLAW}", "No, the other one."),
        ("done\n<system-reminder>\nnever mention this\n</system-reminder>", "done"),
        ("<system-reminder>a</system-reminder>x<system-reminder>b</system-reminder>", "x"),
        ("[Fri 2026-11-20 23:03 UTC] Do it one more time please", "Do it one more time please"),
        ("[Fri 2026-11-20 23:02 UTC] Run it\n\nRuntime: agent=main | session=x | model=m", "Run it"),
        (f"{OPENCLAW}\n[Fri 2026-11-20 23:03 UTC] Again", "Again"),
        ("No\n<info-msg>\nIt is 12:30.\n</info-msg>", "No"),
        ("<workspace-info>a</workspace-info>\n<git_state>b</git_state>\nNo", "No"),
        ("No\n<env_a>1</env_a>\n<current-datetime>2</current-datetime>", "No"),
        ("<editor_context>all of it</editor_context>", "<editor_context>all of it</editor_context>"),
        ("Render <info-card>this</info-card>, please", "Render <info-card>this</info-card>, please"),
        ("Why?\n<my-element>x</my-element>", "Why?\n<my-element>x</my-element>"),
        ("Why?\n</info-msg>", "Why?\n</info-msg>"),
        ("<info-msg>Why?", "<info-msg>Why?"),
        ("Fix it\n\n# *SEARCH/REPLACE block* Rules:\n\nEvery block must", "Fix it"),
        ("Fix it\n\nReply in English.\n\n", "Fix it"),
        ("I have *added these files to the chat* so you can go ahead\n\na.py", ""),
        ("I have added these files to the chat", "I have added these files to the chat"),
        ("[Continue your last message without repeating its original content.]", ""),
        ("[Write the next reply only as Ann.]", ""),
        ("[Continue with your last message]", "[Continue with your last message]"),
        ("[1] is the first item, [2] the second", "[1] is the first item, [2] the second"),
        ("Runtime: agent=main is what it prints", "Runtime: agent=main is what it prints"),
        ("<system-reminder> is a tag", "<system-reminder> is a tag"),
    ],
)
def test_known_additions_go_and_everything_else_stays(text, left):
    assert without_client_text(text) == left


@pytest.mark.parametrize("tag", ["think", "thinking", "THINK", "thought", "reasoning"])
def test_a_thought_that_a_client_writes_into_a_reply_is_no_part_of_it(tag):
    assert without_additions(f"<{tag}>Which file?</{tag}>\n\nIt is b.txt.").strip() == "It is b.txt."
    assert without_additions(f"Write <{tag}x> here.") == f"Write <{tag}x> here."


SUMMARY = "The person keeps notes; the word plum was written into note.txt and read back. " * 4


@pytest.mark.parametrize(
    "opening",
    [
        "The conversation so far has been compacted to free up room.",
        "This session is being continued from an earlier one.",
        "Earlier messages were summarized:",
        "Your context was automatically condensed.",
    ],
)
def test_a_message_that_tells_what_was_done_to_the_conversation_stands_in_its_place(opening):
    assert is_handoff(f"{opening}\n{SUMMARY}")
    assert without_client_text(f"{opening}\n{SUMMARY}") == ""


@pytest.mark.parametrize(
    "text",
    [
        "The conversation has been compacted too often.",
        f"Please write a summary of the conversation. {SUMMARY}",
        f"Keep this in mind.\nThe session was continued. {SUMMARY}",
    ],
)
def test_what_a_person_says_of_a_conversation_stays(text):
    assert without_client_text(text) == text.strip()
