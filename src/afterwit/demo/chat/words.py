"""What the person of the chat world says about an answer: one grammar of wordings, cut into three parts."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from afterwit.demo.speech import Phrases, sentence, wordings_beside
from afterwit.demo.world import Split, drawn

WORDINGS = wordings_beside(__file__)


_PERSON, _COMPLAINTS = WORDINGS["person"], WORDINGS["complaints"]


JOINERS = (", and", ". Also,", ";")


AFTERWARDS = Phrases.of(_PERSON)


approval, failure, unclear = AFTERWARDS.approval, AFTERWARDS.failure, AFTERWARDS.nothing


def complaint(rules: Sequence[str], thing: str, split: Split, rng: Random) -> str:
    """The person's words on every broken rule; `thing` is what they had asked about."""
    first, *others = (drawn(_COMPLAINTS[rule], split, rng).format(f=f"the {thing}") for rule in rules)
    body = first
    for more in others:
        joiner = rng.choice(JOINERS)
        body += f"{joiner.lstrip('.,;') if body.endswith('?') else joiner} {more}"
    return sentence(drawn(_PERSON["openers"], split, rng), body, drawn(_PERSON["closers"], split, rng))
