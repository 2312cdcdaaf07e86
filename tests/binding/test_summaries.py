"""A summary by a side turn is not a person's message, in whatever words a client wraps it."""

from __future__ import annotations

import pytest

from afterwit.binding.bind import with_assistant_summaries
from tests.binding.bindings import HELLO, says

SUMMARY = "A word is kept in note.txt.\nThe person wants a second one beneath it, and to see the file then."
WRITTEN = says("assistant", f"<think>\nBrief.\n</think>\n\n{SUMMARY}")
TITLE = says("assistant", "A note about fruit")
ASKED = says("user", "Add the word pear.")


@pytest.mark.parametrize("wrapped", ["{}", "Context summary:\n\n{}\n\n## Files\n- none", "<x>\n{}\n</x>"])
def test_a_message_that_quotes_a_summary_is_the_models_word(wrapped):
    quoting = says("user", wrapped.format(SUMMARY))
    told = with_assistant_summaries((quoting, HELLO, ASKED), [TITLE, WRITTEN])
    assert told == (says("assistant", quoting.content), HELLO, ASKED)


def test_what_is_short_is_quoted_by_chance():
    quoting = says("user", f"Call it {TITLE.content}. {SUMMARY}")
    assert with_assistant_summaries((quoting,), [TITLE]) == (quoting,)


def test_only_a_persons_messages_are_told():
    result = says("tool", SUMMARY)
    assert with_assistant_summaries((result, HELLO), [WRITTEN]) == (result, HELLO)
