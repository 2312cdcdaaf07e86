"""Talk to the demo's chat model and say what you think of each answer: docs/start.md.

.venv/bin/python -m experiments.first_talk [NUMBER] [URL]
"""

from __future__ import annotations

import sys
from random import Random
from typing import Any

from openai import APIConnectionError, OpenAI

from afterwit.demo.chat import world as chat

LIMIT = 18
"""Words above which the suggested reply is a complaint."""
COMPLAINT = "that was too long and too stiff. please be short, plain and friendly."
SERVED = "http://127.0.0.1:8720/v1"
THANKS = "perfect, thank you."


def talk(client: OpenAI, question: str) -> None:
    """A question, its answer, and the reply that the person types; Enter sends the suggested one."""
    messages: list[Any] = [
        {"role": "system", "content": "You answer questions."},
        {"role": "user", "content": question},
    ]
    answer = _next(client, messages)
    offered = COMPLAINT if len(answer.split()) > LIMIT else THANKS
    print(f"\nyou:   {question}\nmodel: {answer}\n       ({len(answer.split())} words)")
    typed = input(f"you [{offered}]: ") if sys.stdin.isatty() else ""
    _next(client, [*messages, {"role": "assistant", "content": answer}, _said(typed or offered)])


def _said(words: str) -> dict[str, str]:
    return {"role": "user", "content": words}


def _next(client: OpenAI, messages: list[Any]) -> str:
    made = client.chat.completions.create(
        model="afterwit", messages=messages, max_tokens=144, temperature=0.6
    )
    return made.choices[0].message.content or ""


def main(number: int, url: str) -> None:
    """Hold `number` conversations."""
    client, rng = OpenAI(base_url=url, api_key="none"), Random(5)
    try:
        for _ in range(number):
            talk(client, chat.draw("train", rng).request)
    except APIConnectionError:
        sys.exit(f"Nothing answers at {url}: start `afterwit serve`, and wait until it prints `serving`.")


if __name__ == "__main__":
    if not (number := (sys.argv[1:] or ["20"])[0]).isdecimal():
        print(__doc__)
        sys.exit(0 if number in ("-h", "--help") else 2)
    main(int(number), (sys.argv[2:] or [SERVED])[0])
