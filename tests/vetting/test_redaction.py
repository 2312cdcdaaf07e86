"""Texts that count as secrets, and their replacements."""

from __future__ import annotations

import time

import pytest

from afterwit.turn import Message, ToolCall
from afterwit.vetting.redaction import Redaction

FIND = Redaction()
SECRETS = {
    "keys": [
        "AKIA" + "IOSFODNN7EXAMINE",
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "11AA" * 8,
        "glpat-" + "abcde" * 4,
        "xoxb-" + "480123659012-kwqzf",
        "sk-ant-" + "api03-" + "Ab1_" * 8,
        "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
        "AIza" + "Sy7-_" * 7,
        "hf_" + "qW" * 17,
        "npm_" + "zX9" * 12,
        "aw-" + "kL2" * 14,
        "eyJ" + "hbGciOiJIUzI1NiJ9." + "eyJ" + "zdWIiOiJib2Iuc21pdGgifQ." + "dozjgNryP4J3jVmNHl0w5N",
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
        "pip install x@1.2.3, foo@1.2.3.dev, lodash@4.17.21.tgz",
        "git clone git@github.com:acme/x.git; git@gitlab.acme-corp.com:team/repo.git",
        "scp a.txt bob@files.acme.com:/srv",
        "+@pytest.fixture\n-@app.route('/')\n @dataclass.field",
        "icon@2x.png, sprite@3x.webp",
        "ssh user@host.internal, me@printer.local, root@10.0.0.1",
        "noreply@github.com, 12+bob@users.noreply.github.com",
        "postgres://postgres:postgres@localhost/db, amqp://guest:guest@mq/, mysql://user:password@db/x",
        "mongodb+srv://<user>:<password>@cluster0.mongodb.net, https://$U:$P@host/, https://a:${TOKEN}@h/",
        "AKIA"
        + "IOSFODNN7EXAMPLE, ghp_"
        + "x" * 36
        + ", sk-"
        + "your-api-key-goes-here, sk-"
        + "1234567890abcdef" * 2,
        "eyJ" + "hbGciOiJIUzI1NiJ9." + "eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0." + "dozjgNryP4J3jVmNHl0w5N",
        "-----BEGIN " + "PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
    ],
)
def test_what_only_looks_like_a_secret_is_left(text: str) -> None:
    assert FIND.redacted(text) == text


def test_an_address_at_the_edge_of_a_diff_is_found() -> None:
    assert FIND.redacted("+bob@mail.org") == "+[redacted: emails]"
    assert FIND.found(["mail bob@163.com: now"])


def test_kinds_are_chosen_and_own_patterns_join_them() -> None:
    own = Redaction(kinds=("cards",), patterns=(r"ACME-[0-9]{4}",))
    text = "ACME-1234, bob@mail.org, 4111111111111111"
    assert own.redacted(text) == "[redacted: own], bob@mail.org, [redacted: cards]"
    assert not Redaction(kinds=()).found([text])
    with pytest.raises(ValueError, match="is not a regular expression"):
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


def test_a_text_that_was_searched_is_not_searched_again() -> None:
    text, took = "bob@mail " * 50_000, list[float]()
    for _ in range(2):
        begin = time.process_time()
        assert not FIND.found([text])
        took.append(time.process_time() - begin)
    assert took[1] < 0.2 * took[0]


def test_numbers_in_json_are_not_read_one_by_one() -> None:
    numbers = list(range(1000))
    assert FIND.redacted_json({"ids": numbers})["ids"] is numbers
