"""`python -m tests.bugs.talk_table`: how often models speak of hints before and after they learned from them.

The demo's model and a talkative one, with the rejection of such hints and without.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from tests.bugs.talking import SHIPPED, learn, model_in, talk_rate, talkative
from tests.bugs.test_bug_12_hint_talk_is_learned import unread, votes


def main() -> None:
    """A row for each model."""
    torch.set_num_threads(1)
    print("| model | before | after | after, were talk of hints not rejected |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="afterwit-talk-") as folder:
        for name, base in (
            ("the demo's, as shipped", SHIPPED),
            ("talkative", talkative(Path(folder) / "base")),
        ):
            homes = {judged: Path(folder) / f"{name} {judged.__name__}" for judged in (votes, unread)}
            models = (model_in(base), *(learn(base, home, judged) for judged, home in homes.items()))
            print(f"| {name} | {' | '.join(f'{talk_rate(model):.3f}' for model in models)} |", flush=True)


if __name__ == "__main__":
    main()
