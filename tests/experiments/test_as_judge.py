"""Verdicts among the agent's messages are counted, and only the agent's."""

from experiments.as_judge import verdicts


def test_the_agents_messages_with_a_verdict_are_counted() -> None:
    talk = [
        {"role": "user", "content": r"what is \boxed{1}?"},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": r"done. \boxed{-1}"},
    ]
    assert verdicts([talk, talk[:2]]) == (1, 3)
