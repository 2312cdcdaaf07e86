"""What the owner of the tools world says: one grammar of wordings, cut into three parts.

`train` wordings are seen in pretraining, `dev` ones were used to choose settings, `fresh` ones are for
reports. Every list is cut by position, so that each part gets wordings of every kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from afterwit.demo.speech import Phrases, sentence, wordings_beside
from afterwit.demo.world import Split, drawn

WORDINGS = wordings_beside(__file__)


_PERSON, _COMPLAINTS = WORDINGS["person"], WORDINGS["complaints"]


AFTERWARDS = Phrases.of(_PERSON)


approval, failure, unclear = AFTERWARDS.approval, AFTERWARDS.failure, AFTERWARDS.nothing


def complaint(rules: Sequence[str], file: str, split: Split, rng: Random) -> str:
    """A person's words on every broken rule, the first one's file named if the wording has a slot for it."""
    said = [drawn(_COMPLAINTS[rule], split, rng).format(f=file) for rule in rules]
    body = said[0] + "".join(f"{rng.choice((', and', '. Also,', ';'))} {more}" for more in said[1:])
    return sentence(drawn(_PERSON["openers"], split, rng), body, drawn(_PERSON["closers"], split, rng))
