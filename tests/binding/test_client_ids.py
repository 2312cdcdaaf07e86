"""A client's own ids: read if they are sent, never needed, never a reason to refuse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.binding.request import ClientSession, client_session_of
from afterwit.turn import Kind


@pytest.mark.parametrize(
    ("headers", "body", "session"),
    [
        ({"x-session-id": "ses_1", "x-session-affinity": "ses_2"}, {}, "ses_1"),
        ({"session-id": "s", "thread-id": "t"}, {}, "s t"),
        ({"session_id": "uuid:3"}, {}, "uuid"),
        ({"x-session-affinity": "a"}, {"prompt_cache_key": "b"}, "a"),
        ({"x-thread-id": "t", "x-resource-id": "r"}, {}, "t"),
        ({}, {"metadata": {"user_id": "u"}, "prompt_cache_key": "b"}, "u"),
        ({}, {"metadata": {"user_id": '{"device_id": "d", "session_id": "s"}'}}, "s"),
        ({}, {"metadata": {"user_id": '{"device_id": "d"}'}}, '{"device_id": "d"}'),
        ({}, {"metadata": {"user_id": "{"}}, "{"),
        ({}, {"prompt_cache_key": "uuid:12"}, "uuid"),
        ({}, {"session_id": "x"}, "x"),
        ({"x-session-id": " "}, {"metadata": {"user_id": 5}, "session_id": None}, None),
        ({"user-agent": "x"}, {"user": "u1", "metadata": {"a": "b"}}, None),
    ],
)
def test_the_first_id_that_is_there_names_the_session(headers, body, session):
    assert client_session_of(headers, body).session == session


def test_the_plugin_says_what_a_turn_is_and_when_a_session_ends():
    said = client_session_of({"x-session-id": "s", "x-turn-type": "Side", "x-session-done": "true"}, {})
    assert (said.session, said.turn_type, said.done) == ("s", Kind.SIDE, True)
    assert client_session_of({"x-turn-type": "main"}, {}).turn_type is Kind.MAIN
    assert client_session_of({"x-turn-type": "unknown"}, {}).turn_type is None


@pytest.mark.parametrize("yes", ["true", "1", "yes", "on", "On", " ON "])
def test_a_session_may_be_done_by_any_usual_yes(yes: str) -> None:
    assert client_session_of({"x-session-done": yes}, {}).done
    assert client_session_of({}, {"session_done": yes}).done
    assert not client_session_of({"x-session-done": "off"}, {}).done


@pytest.mark.parametrize(
    ("value", "done"), [(True, True), (1, True), (False, False), (None, False), ([], False)]
)
def test_the_published_fields_of_a_body_mean_what_the_headers_mean(value: object, done: bool) -> None:
    said = client_session_of({}, {"session_id": "s", "turn_type": "side", "session_done": value})
    assert said == ClientSession(session="s", turn_type=Kind.SIDE, done=done)
    both = client_session_of({"x-turn-type": "main"}, {"turn_type": "side"})
    assert both.turn_type is Kind.MAIN
    assert client_session_of({}, {"turn_type": ["side"]}).turn_type is None


def test_codex_says_when_it_compacts():
    assert (
        client_session_of({"x-codex-turn-metadata": '{"request_kind": "compaction"}'}, {}).turn_type
        is Kind.SIDE
    )
    for metadata in ('{"request_kind": "turn"}', "{", "[]", '{"request_kind": 3}'):
        assert client_session_of({"x-codex-turn-metadata": metadata}, {}).turn_type is None


def test_copilot_says_what_a_request_is_for():
    assert client_session_of({"x-interaction-type": "conversation-compaction"}, {}).turn_type is Kind.SIDE
    for kind in ("conversation-user", "conversation-subagent", ""):
        assert client_session_of({"x-interaction-type": kind}, {}).turn_type is None


def test_a_sub_agent_is_a_session_of_its_own():
    own = client_session_of({"x-session-id": "child", "x-parent-session-id": "parent"}, {})
    assert own.session == "child"
    none = client_session_of({"x-parent-session-id": "parent"}, {})
    assert none.session not in (None, "parent")


names = st.sampled_from(
    [
        "x-session-id",
        "session-id",
        "thread-id",
        "x-turn-type",
        "x-session-done",
        "x-codex-turn-metadata",
        "x-interaction-type",
    ]
)
values = st.none() | st.integers() | st.text(max_size=5) | st.lists(st.none(), max_size=1)
bodies = values | st.dictionaries(
    st.sampled_from(["metadata", "prompt_cache_key", "session_id"]),
    values | st.dictionaries(st.just("user_id"), values),
)


@given(headers=st.dictionaries(names, st.text(max_size=300)), body=bodies)
def test_no_headers_and_no_body_make_it_raise(headers, body):
    client = client_session_of(headers, body)
    assert isinstance(client, ClientSession)
    assert client.session is None or 0 < len(client.session) <= 600
