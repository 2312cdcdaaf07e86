"""Hints that are rejected, and hints that are accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.judging.voting import hint_fault as fault
from afterwit.judging.voting import quotes, speaks_of_hints

REPLY = "No, I asked you to keep the old file and write the new text next to it. Please use python3 as well."
FAILED = "File \"/work/app/main.py\", line 12\nModuleNotFoundError: No module named 'yaml'"


@pytest.mark.parametrize(
    "hint",
    [
        "As the hint says, read the file first.",
        "Follow this hint and answer briefly.",
        "Hint: answer in one sentence.",
        "The user's hint asks for python3.",
        "Use the hints that were given.",
        "Do what was hinted at before.",
        "In hindsight the file should be read first.",
        "HINT, read the file before editing it.",
        "Read the `hint` and follow it.",
        "Take the\nhint and be brief.",
        "Follow the hint/instruction given above.",
        "Read the hint(s) before you answer.",
        "Give a hint-based answer of one line.",
        "Do what the user-hint asks for.",
        "Mind the _hint_ and be brief.",
        "Mind the *hint*; be brief.",
        "Read the hint.Then answer briefly.",
        "Look at [hint] and answer briefly.",
        "Use user_hint to answer briefly.",
        "The instruction/hint says python3.",
        "Wie der Hinweis sagt, lies zuerst die Datei.",
        "Comme l'indice le dit, lis d'abord le fichier.",
        "D\u2019après l\u2019indication, lis d\u2019abord le fichier.",
        "Como dice la pista, lee primero el archivo.",
        "Segue a dica e lê o arquivo.",
        "ヒントの通り、先にファイルを読む。",
        "正如提示所说，先读取文件。",
        "根据提示，先读取文件。",
    ],
)
def test_talk_of_hints_is_rejected(hint):
    assert speaks_of_hints(hint)


@pytest.mark.parametrize(
    "hint",
    [
        "Read the file before editing it.",
        "Add type hints to every function of the module.",
        "Keep the type\nhints of the signature.",
        "Call typing.get_type_hints instead of reading __annotations__.",
        "Pass --hint to the solver.",
        "Set hint=3 in the configuration.",
        "Open src/hints/rules.py first.",
        "Read hints.json, then edit it.",
        "List /work/hints before you write to it.",
        "Use type-hinting in the module.",
        "Send 103 Early Hints before the answer.",
        "Implement __length_hint__ for the iterator.",
        "Add the query hint for the index.",
        "Whiten the chintz before cutting it.",
        "Lis l'indice 0 du tableau avant de l'utiliser.",
        "提示用户输入文件名，然后打开它。",
        "Lies zuerst die Datei, dann ändere sie.",
    ],
)
def test_a_task_about_things_called_hints_may_have_its_word(hint):
    assert not speaks_of_hints(hint)


@pytest.mark.parametrize(
    "hint",
    [
        "keep the old file and write the new text",
        "You were told: “No, I asked you to keep the old file and write the new text next to it.”",
        "Please KEEP the old file,  and write\nthe new text beside it.",
        REPLY,
    ],
)
def test_eight_words_in_a_row_of_what_was_said_are_a_quote(hint):
    assert quotes(hint, [REPLY], words=8)


@pytest.mark.parametrize(
    "hint",
    [
        "Write the new text to a file of its own and leave the old file as it is.",
        "Use python3 as well as a path relative to the workspace.",
        "Keep the old file; put what is new into a second one.",
        "asked to keep the old file and",
    ],
)
def test_a_hint_may_share_words_and_short_pieces_with_what_was_said(hint):
    assert not quotes(hint, [REPLY], words=8)


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        (
            "Run `python3 -m pytest tests/unit/test_parser.py -q --maxfail=1` before answering.",
            "please run python3 -m pytest tests/unit/test_parser.py -q --maxfail=1",
        ),
        ("Check that the module exists before importing: No module named 'yaml' is avoidable.", FAILED),
        (
            "Edit /home/user/work/projects/a/very/long/path/to/the/module.py instead.",
            "wrong file, /home/user/work/projects/a/very/long/path/to/the/module.py",
        ),
    ],
)
def test_commands_paths_and_error_names_may_be_quoted(hint, said):
    assert not quotes(hint, [said], words=8)


def test_a_whole_message_is_a_quote_however_short():
    assert quotes("Use metric units.", ["use metric units"], words=8)
    assert not quotes("Use metric units in every table.", ["use metric units"], words=8)


def test_a_quote_does_not_run_across_two_messages():
    said = "one two three four", "five six seven eight"
    assert not quotes("one two three four five six seven eight nine", said, words=8)


def test_two_characters_count_as_a_word_in_scripts_without_spaces():
    said = "请不要使用这个函数,请改用另一个更安全的函数来读取文件"
    assert quotes("应当请改用另一个更安全的函数来读取文件", [said], words=8)
    assert not quotes("读取文件时改用更安全的函数", [said], words=8)


WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota")
words = st.lists(st.sampled_from(WORDS), max_size=30)


@given(words, words, st.integers(1, 9))
def test_a_quote_is_a_common_run_of_words_or_a_whole_message(hint, said, limit):
    def runs(text):
        return {tuple(text[at : at + limit]) for at in range(len(text) - limit + 1)}

    expected = bool(runs(hint) & runs(said)) or (bool(said) and hint == said)
    assert quotes(" ".join(hint), [" ".join(said)], words=limit) is expected


def test_what_is_not_said_cannot_be_quoted():
    assert not quotes("Read the file before editing it.", [], words=1)
    assert not quotes("", [""], words=1)


def test_a_fault_is_named_and_a_good_hint_has_none():
    assert fault("too short", [], quote_words=8) == "hint shorter than 11 characters"
    assert fault("Remember the hint.", [], quote_words=8) == "hint speaks of hints"
    assert fault(REPLY, [REPLY], quote_words=8) == "hint quotes the next state"
    assert fault("Write to a second file.", [REPLY], quote_words=8) is None


def test_a_sentence_of_seven_ideographs_is_long_enough():
    assert fault("先阅读配置文件", [], quote_words=8) is None
    assert fault("先读文件", [], quote_words=8) == "hint shorter than 11 characters"
