"""Words without meaning, with_noise over pretraining texts so that the model learns to look past them."""

from random import Random

_WORDS = """
a about after again all also always am an and any are as ask at away back be because been before being
below best better big both but by call came can case check clear close come could day dear did do does
done down each early easy else end enough even ever every far fast few find fine first for found four
free from full get give go good got great had half happy hard has have he heard help her here him his
home hope hour how i idea if important in into is it just keep kind know last late later least leave less
let like line list little long look lot made make many may me mean mind minute month more morning most
much must my name near need never new next night no not now of off office often ok old on once one only
open or other our out over own page part people place plan please point project put quick quite ready
really reason right same save say see seems send set she short should show since small so some soon sorry
start stay step still stop such sure take talk team tell than thank that the their them then there these
they thing things think this those thought three time to today together tomorrow too took try turn two
under until up us use used very want was way we week well went were what when where which while who why
will with without word work would write year yes yesterday yet you your
"""
_COMMON = _WORDS.split()


def sentence(rng: Random) -> str:
    """A few common words in no order."""
    words = rng.choices(_COMMON, k=rng.randint(1, 6))
    return " ".join(words).capitalize() + rng.choice(".....!?")


def with_noise(text: str, share: float, rng: Random) -> str:
    """The text, in `share` of the cases with such a sentence before it, after it, or both."""
    if rng.random() > share:
        return text
    place = rng.random()
    before = f"{sentence(rng)} " if place < 0.6 else ""
    after = f" {sentence(rng)}" if place > 0.4 else ""
    return f"{before}{text}{after}"
