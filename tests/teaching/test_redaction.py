"""What counts as a secret, and what stands in its place."""

from __future__ import annotations

import time

import pytest

from afterwit.message import Message, ToolCall
from afterwit.teaching.redaction import Redaction

FIND = Redaction()
SECRETS = {
    "keys": [
        "AKIA" + "IOSFODNN7EXAMPLE",
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "11AA" * 8,
        "glpat-" + "abcde" * 4,
        "xoxb-" + "123456789012-abcdef",
        "sk-ant-" + "api03-" + "Ab1_" * 8,
        "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
        "AIza" + "S" * 35,
        "hf_" + "q" * 34,
        "npm_" + "z" * 36,
        "aw-" + "k" * 43,
        "eyJ" + "hbGciOiJIUzI1NiJ9." + "eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0." + "dozjgNryP4J3jVmNHl0w5N",
        "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----",
        "postgres://bob:" + "hunter22@db",
    ],
    "cards": ["4111 1111 1111 1111", "5555-5555-5555-4444", "378282246310005"],
    "emails": ["bob.smith+x@mail.co.uk"],
}


@pytest.mark.parametrize(
    ("kind", "secret"), [(kind, each) for kind, all_ in SECRETS.items() for each in all_]
)
def test_a_secret_is_found_and_a_mark_stands_in_its_place(kind: str, secret: str) -> None:
    text = f"Take {secret} there."
    assert FIND.found([text])
    redacted = FIND.redacted(text)
    assert secret not in redacted
    assert f"[redacted: {kind}]" in redacted
    assert not FIND.found([redacted])


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1112",
        "1234567890123452",
        "turn 01jq3kx8v0z9c5m2n7p4r6t8wy",
        "user@example.com, a@b.test",
        "task-force, risk-free-and-not-a-key-at-all",
        "https://docs.example.org/a:b",
        "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "1795398153.4260101",
        "pip install x@1.2.3",
    ],
)
def test_what_only_looks_like_a_secret_is_left(text: str) -> None:
    assert FIND.redacted(text) == text


def test_kinds_are_chosen_and_own_patterns_join_them() -> None:
    own = Redaction(kinds=("cards",), patterns=(r"ACME-[0-9]{4}",))
    text = "ACME-1234, bob@mail.org, 4111111111111111"
    assert own.redacted(text) == "[redacted: own], bob@mail.org, [redacted: cards]"
    assert not Redaction(kinds=()).found([text])
    with pytest.raises(ValueError, match="is no regular expression"):
        Redaction(patterns=("(",))
    with pytest.raises(ValueError, match="'key'"):
        Redaction(kinds=("key",))  # type: ignore[arg-type]


def test_a_message_is_searched_whole() -> None:
    call = ToolCall(id="1", name="send", arguments='{"to": "bob@mail.org"}')
    assert FIND.in_message(Message(role="assistant", tool_calls=(call,)))
    assert FIND.in_message(Message(role="assistant", content="x", reasoning="mail bob@mail.org"))
    assert not FIND.in_message(Message(role="assistant", content="Done."))


def test_json_is_redacted_in_its_values() -> None:
    row = {"bob@mail.org": ["bob@mail.org", 3, None, {"a": ("bob@mail.org",)}]}
    mark = "[redacted: emails]"
    assert FIND.redacted_json(row) == {"bob@mail.org": [mark, 3, None, {"a": [mark]}]}


def test_the_search_takes_linear_time() -> None:
    def seconds(length: int) -> float:
        texts = [
            "a." * length,
            "1 " * length,
            "eyJ" * length,
            "@" * length,
            "-----BEGIN PRIVATE KEY-----" * length,
        ]
        begin = time.process_time()
        FIND.found(texts)
        return time.process_time() - begin

    seconds(10)
    assert seconds(10_000) < 40 * max(seconds(1_000), 0.005)
