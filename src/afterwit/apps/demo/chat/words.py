"""What the person of the chat world says about an answer: one grammar of wordings, cut into three parts."""

from collections.abc import Sequence
from random import Random

from afterwit.apps.demo.world import Split, part

OPENERS = (
    "",
    "Hm,",
    "Well,",
    "Oh,",
    "",
    "Please,",
    "Look,",
    "No,",
    "Ok, but",
    "",
    "Sorry, but",
    "Ah,",
    "Again,",
    "One thing:",
    "",
    "Hey,",
    "Oh no,",
    "Well, well,",
)

CLOSERS = (
    "",
    "I like it that way.",
    "Please remember that.",
    "",
    "That is how I like it.",
    "",
    "I said so before.",
    "It matters to me.",
    "",
    "That is just me.",
    "Please keep to that.",
    "I told you before.",
    "Next time, please.",
    "",
    "I am tired.",
    "That is what I am used to.",
    "",
    "I do not want that again.",
)

COMPLAINTS: dict[str, tuple[str, ...]] = {
    "short": (
        "that was too long",
        "make it shorter",
        "you said it in far too many words",
        "a short answer is enough for me",
        "this is much too long",
        "it could be a lot shorter",
        "I do not want to read that much",
        "be brief",
        "you go on and on",
        "that is too much text",
        "fewer words would do",
        "I do not want that many words",
        "such a long answer to a short question",
        "say less",
        "one or two lines are enough",
        "I stopped reading half way",
        "you go on for too long",
        "brief answers are enough",
        "why so much text about {f}?",
        "cut it down",
        "I have no time to read so much",
        "that much about {f}?",
        "less text, please",
        "why was that so long?",
        "just the answer about {f}, nothing more",
        "leave out all the rest",
        "it takes me too long to read that",
        "half of it would have been enough",
        "I do not need so many words about {f}",
        "shorter, please",
    ),
    "plain": (
        "you sound stiff",
        "use plain words",
        "nobody talks like that",
        "that is too formal",
        "plain words, please",
        "do not be so stiff",
        "you write like an office",
        "I do not get these big words",
        "talk like a normal person",
        "simple words would be fine",
        "that sounds too formal to me",
        "why such big words?",
        "you sound like a lawyer",
        "no fancy words for me",
        "say it simply",
        "this is not a letter from the bank",
        "why such stiff words?",
        "these words are too fancy",
        "that is how a form is written",
        "I want everyday words",
        "I had to look up half of these words",
        "you talk like a book",
        "simpler words, please",
        "nobody says it like that",
        "stop being so formal",
        "what you write about {f} sounds like the law",
        "I do not speak like an office",
        "the words are too hard for me",
        "everyday words are better",
        "you talk like a lawyer",
    ),
    "friendly": (
        "you could at least say hello",
        "that was cold",
        "be a bit more friendly",
        "a kind word would be nice",
        "say hello first",
        "be more friendly",
        "you did not greet me",
        "why so cold?",
        "I would like a warm word",
        "talk to me like a friend",
        "a warm word would help",
        "you did not say hello",
        "not even a hello?",
        "that was not friendly",
        "greet me first",
        "you sound as if you did not like me",
        "that sounds cold",
        "no greeting at all?",
        "I miss a greeting",
        "a little warmth would be good",
        "say hi to me",
        "are you cross with me?",
        "you forgot to greet me",
        "a friend would greet me",
        "start with a hi or so",
        "it was not warm at all",
        "you are not being kind to me",
        "I like it when people are friendly to me",
        "I want a kind word with it",
        "a hi would be kind",
    ),
    "steps": (
        "number the steps",
        "I want it step by step",
        "give me a list",
        "I cannot follow without numbers",
        "give me the steps with numbers",
        "a list with numbers would help",
        "one step on each line, with a number",
        "what is step one and what is step two?",
        "I lose my place without a list",
        "put each step on a line of its own",
        "I need a list of the steps",
        "which step is first? put numbers",
        "the steps should be a list",
        "write one, two, three before the steps",
        "that is all in one piece, make a list",
        "where are the numbers?",
        "a number before each step, please",
        "make it a list, step by step",
        "I need numbers to follow it",
        "do not run the steps together",
        "please count the steps for me",
        "how am I to follow that without a list?",
        "step by step, please",
        "I cannot see where one step ends",
        "a numbered list is what I need",
        "each step of it needs a line",
        "the steps for {f} have no numbers",
        "it should say one, two, three",
        "put the steps in a list",
        "no numbers, so I lost my place",
    ),
}

JOINERS = (", and", ". Also,", ";")

THANKS = (
    "thanks",
    "thank you",
    "great",
    "perfect",
    "that helps, thanks",
    "great, that helps",
    "got it, thanks",
    "very good",
    "that is what I wanted to know",
    "good to know",
    "thank you, that is good to know",
    "perfect, thanks",
    "lovely",
    "good answer",
    "that helps",
    "I like that answer",
    "a lovely answer",
    "great answer",
    "just what I needed",
    "exactly",
    "wonderful",
    "ah, good",
    "just what I wanted",
    "wonderful, thank you",
    "thanks a lot",
    "super",
    "nice, thanks",
    "yes, that is it",
    "super, thanks a lot",
    "nice answer",
    "well said",
    "nicely put",
    "yes, perfect",
    "thank you so much",
    "well put",
    "yes, thank you so much",
)

MOVING_ON = (
    "",
    "that is all for now",
    "I will go and see",
    "",
    "that is all",
    "I will go now",
    "I will do that",
    "",
    "I am happy with it",
    "now I know",
    "now I am happy",
    "I know it now",
    "",
    "see you later",
    "you did it the way I like",
    "",
    "see you soon",
    "that is the way I like it",
)

UNCLEAR = (
    "hm, let me think",
    "one moment",
    "I will read it later",
    "wait a minute",
    "let me think about it",
    "wait, one moment",
    "ok, wait",
    "let me see",
    "I am back in a minute",
    "hold on, the phone",
    "I will be back in a moment",
    "let me see about it later",
)

FAILED = (
    "you did not say {o}",
    "I miss {o} in your answer",
    "that is wrong, it should be {o}",
    "no, it is {o}",
    "that is wrong, it is {o}",
    "your answer does not say {o}",
    "not right, my notes say {o}",
    "what about {o}? it is not in your answer",
    "wrong, look again, it says {o}",
    "the right answer has {o} in it",
    "not right, it should be {o}",
    "no, my notes say {o}",
)


def complaint(rules: Sequence[str], thing: str, split: Split, rng: Random) -> str:
    """The person's words on every broken rule; `thing` is what they had asked about."""
    first, *others = (rng.choice(part(COMPLAINTS[rule], split)).format(f=f"the {thing}") for rule in rules)
    body = first
    for more in others:
        joiner = rng.choice(JOINERS)
        body += f"{joiner.lstrip('.,;') if body.endswith('?') else joiner} {more}"
    return _sentence(rng.choice(part(OPENERS, split)), body, rng.choice(part(CLOSERS, split)))


def approval(split: Split, rng: Random) -> str:
    """Thanks, in words, perhaps with a step onward."""
    thanks, onward = rng.choice(part(THANKS, split)), rng.choice(part(MOVING_ON, split))
    return _sentence("", thanks, onward and onward[0].upper() + onward[1:] + ".")


def failure(missing: str, split: Split, rng: Random) -> str:
    """The person's words on an answer that lacks a fact."""
    return _sentence("", rng.choice(part(FAILED, split)).format(o=missing), "")


def unclear(split: Split, rng: Random) -> str:
    """Words that say nothing about the answer."""
    return _sentence("", rng.choice(part(UNCLEAR, split)), "")


def _sentence(opener: str, body: str, closer: str) -> str:
    end = "" if body[-1] in ".?!" else "."
    text = " ".join(piece for piece in (opener, body + end, closer) if piece)
    return text[0].upper() + text[1:]
