"""A person's own words as hints: what they give as one, and the part of a reply that may be one. Pure, linear
time.

Their hint and their better answer become hints of the turn, in place of the judge's. A better answer becomes
part of the teacher's prompt as a demonstration (SDFT, arXiv:2601.19897): the policy learns from what it
sampled itself, never from these words.

A reply is a hint but for what only the person could have known. "Keep it short" and "call me Ana" are about
how to answer. "The brush is Oscar's" is a fact that the model could not have known: taught to state it, it
would guess owners. A sentence is left out if it holds a value (a name, a date, a number, an address) that was
nowhere in the model's prompt or response, unless the value is about how to answer. Names in lower case and
facts without a name pass, because their form does not show them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from afterwit.judging.questions import JudgeView, view_of
from afterwit.judging.voting import MIN_CHARS, VoteRules, long_enough, select_candidates, speaks_of_hints
from afterwit.turn import RecordedTurn
from afterwit.verdict import Feedback, NextState, Question, Verdict, Vote
from afterwit.vetting.redaction import Redaction

MOST_HINT = 1000
"""Characters of a hint."""
MOST_CORRECTION = 8000
"""Characters of a better answer: the teacher reads it with the whole prompt."""
_BEFORE, _AFTER = "Here is an example of a good answer:", "Now answer in your own words."


def demonstration(correction: str) -> str:
    """The hint that shows a better answer to the teacher."""
    return f"{_BEFORE}\n\n{correction}\n\n{_AFTER}"


def is_demonstration(hint: str) -> bool:
    """Whether a hint shows an answer, which belongs to its own prompt alone."""
    return hint.startswith(_BEFORE) and hint.endswith(_AFTER)


def fault_in_words(feedback: Feedback, redaction: Redaction) -> tuple[str, str] | None:
    """The field that cannot teach and the reason in a sentence, as far as the words show; None: both can."""
    hint, correction = feedback.hint, feedback.correction
    if hint is not None:
        if len(hint) > MOST_HINT:
            return "hint", f"hint is limited to {MOST_HINT} characters, not {len(hint)}: send one thought."
        if not long_enough(hint):
            return "hint", f"hint needs {MIN_CHARS} characters or more: describe a better answer."
        if speaks_of_hints(hint):
            return "hint", "hint mentions hints, which the model would learn to do: write only what to do."
    if correction is not None and len(correction) > MOST_CORRECTION:
        return "correction", f"correction is limited to {MOST_CORRECTION} characters, not {len(correction)}."
    for name, words in (("hint", hint), ("correction", correction)):
        if words is not None and redaction.found([words]):
            return name, f"{name} holds a secret, such as a key, a card number or an address: leave it out."
    return None


def fault_for_turn(feedback: Feedback, turn: RecordedTurn) -> tuple[str, str] | None:
    """As `fault_in_words`, as far as the turn shows."""
    hint, correction, answer = feedback.hint, feedback.correction, turn.message.content or ""
    if correction is not None and correction.split() == answer.split():
        return "correction", "correction is the answer itself: change it, or send thumb up."
    asked = view_of(turn.conversation, turn.message, NextState(feedback=feedback))
    if hint is not None and teachable(hint, asked) != hint:
        why = "a name, a date or a number that the model had not read, so it would learn to guess"
        return "hint", f"hint holds {why}: describe how to answer, or send a correction."
    return None


def taught(feedback: Feedback) -> list[str]:
    """The hints that a person gave: their own, and their better answer as a demonstration."""
    shown = None if feedback.correction is None else demonstration(feedback.correction)
    return [hint for hint in (feedback.hint, shown) if hint is not None]


def with_given(verdict: Verdict, next_state: NextState, rules: VoteRules) -> Verdict:
    """The verdict with what a person taught as its hints, if they did, and a vote for each."""
    feedback = next_state.feedback
    if feedback is None or not feedback.teaches:
        return verdict
    given = taught(feedback)
    longest, most = rules.reads.keeps_longest, rules.max_candidates
    votes = [Vote(question=Question.OWN_WORDS, words="", value=0, hint=hint) for hint in given]
    hints = select_candidates(given, max_candidates=most, longest=longest)
    return replace(verdict, hints=hints, votes=(*verdict.votes, *votes))


_SENTENCE = re.compile(
    r"[^.!?\n\u3002\uff01\uff1f]*(?:[.!?](?!\s|\Z)[^.!?\n\u3002\uff01\uff1f]*)*[.!?\n\u3002\uff01\uff1f]*"
)
"""A point inside a number or an address ends none."""
_TOKEN = re.compile(r"\w+")
_MONTHS = (
    r"January|February|March|April|June|July|August|September|October|November|December|Januar|Februar|März"
    r"|Mai|Juni|Juli|Oktober|Dezember|janvier|février|mars|avril|juin|juillet|août|septembre|octobre"
    r"|novembre|décembre|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre"
    r"|diciembre|gennaio|febbraio|aprile|maggio|giugno|luglio|settembre|ottobre|dicembre"
)
_DAYS = (
    r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days?|Montag|Dienstag|Mittwoch|Donnerstag|Freitag|Samstag"
    r"|Sonntag|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche|lunes|martes|miércoles|jueves|viernes"
    r"|sábado|domingo"
)
_EXACT = re.compile(
    r"https?://\S{1,300}|www\.\S{1,300}|[\w.+-]{1,64}@[\w.-]{1,128}|(?<!\w)@\w{2,64}"
    r"|\+?\d[\d ()/.-]{5,24}\d"
    r"|\b\d{1,2}[:h]\d{2}\b|\b\d{1,2}(?:\.\d{2})? ?(?:[ap]\.?m\b|Uhr\b|o['\u2019]clock\b)|\d{1,2}[点时時]"
    r"|\b\d{1,4}[./-]\d{1,2}[./-]\d{1,4}\b|\d{1,4}[年月日号]"
    rf"|\b(?:{_DAYS}|{_MONTHS})\b|\b\d{{1,2}}(?:st|nd|rd|th)?(?: of)? May\b|\bMay \d{{1,2}}\b"
    r"|[$\u20ac\u00a3\u00a5] ?\d|\d ?(?:euros?|dollars?|pounds?|yen|EUR|USD|[$\u20ac\u00a3\u00a5])"
    r"|\b(?!UTF|ISO|SHA|MD|RFC|PEP|ES|MP|UTC|GMT|HTML|H|A|Q|V)[A-Z]{1,6}-?\d{2,12}\b"
)
"""Addresses, telephone numbers, times, dates, amounts, and codes such as LH1234."""
_MEASURED = re.compile(
    r"(?<![\d.,])\d[\d.,]{0,12}(?: ?(?:to|-|\u2013|or|bis|o|ou) ?\d{1,12})?[ -]{0,2}(?:(?:[^\W\d_]+[ -]){0,2}"
    r"(?:words?|sentences?|lines?|letters?|characters?|chars?|tokens?|paragraphs?|points?|bullets?"
    r"|items?|examples?|steps?|options?|pages?|columns?|spaces?|decimals?|digits?|places?|emojis?|hours?"
    r"|formats?|Wörtern?|Sätzen?|Zeilen?|Zeichen|Punkten?|mots|phrases|lignes|palabras|frases|líneas|parole"
    r"|frasi|righe)\b|[字行句文])",
    re.IGNORECASE,
)
"""Numbers that measure an answer."""
_NUMBER = re.compile(r"\d[\d.,]*")
_PERSONAL = re.compile(
    r"(?<!\w)(?:my|our|mine|ours|I am|I['\u2019]m|I have|I was|we are|we['\u2019]re|we have|mein(?:e[nmrs]?)?"
    r"|unser\w{0,2}|ich bin|ich habe|wir sind|wir haben|mon|ma|mes|notre|nos|je suis|j['\u2019]ai|mis?"
    r"|nuestr[oa]s?|soy|tengo|mio|mia|nostr[oa]|sono|ho)(?!\w)|[我私俺]",
    re.IGNORECASE,
)
"""Of the person or what is theirs."""
_OWNED = re.compile(
    r"\b(?:(?:is|are|was|were|not) (\w{2,40})['\u2019]s(?=\W*(?:\Z|,))"
    r"|belongs? to (?!(?:me|us|you|the|a|my|our)\b)(\w{2,40})"
    r"|(?:my|our) (?:\w{1,20} ){1,3}(?:is|are|was|were)(?: called)? (?!(?:not|too|very|to)\b)(\w{2,40}))",
    re.IGNORECASE,
)
"""The owner, or what something of the person's is called or is like, in small letters too."""
_CALLED = re.compile(
    r"\b(?:call (?:me|us)|address (?:me|us)|refer to (?:me|us)|sign (?:it |them )?(?:as|with)|nenne? mich|sag"
    r" (?:bitte )?\w+ zu mir|appel(?:le|ez)[ -]moi|ll[aá]m[ae]n?me|chiam[ai]mi|use (?!\w+['\u2019]s\b)"
    r"|using (?!\w+['\u2019]s\b)|prefer (?!\w+['\u2019]s\b))",
    re.IGNORECASE,
)
"""A name after these is about how to answer."""
_WORD = re.compile(r"[^\W\d_][^\W_]*(?:['\u2019-][^\W_]+)*")
_POSSESSIVE = re.compile(r"\A[cdjlmnstCDJLMNST]['\u2019]|['\u2019]s\Z")
_OPENERS = re.compile(
    r"(?:it|that|this|let|what|here|there|who|s?he|where|how|when|one|everybody|everyone|nobody)\Z",
    re.IGNORECASE,
)
"""Words whose 's at the beginning of a sentence is a verb."""
_COMMON = re.compile(
    r"(?:i|ok|okay|yes|no|not|please|thanks?|sorry|hi|hello|hey|dear|why|what|how|where|when|who|but|and|so"
    r"|english|german|french|spanish|italian|portuguese|dutch|polish|russian|turkish|arabic|greek|swedish|danish"
    r"|norwegian|finnish|czech|hungarian|japanese|chinese|korean|hindi|latin|british|american|european"
    r"|python|java|javascript|typescript|rust|go|ruby|kotlin|swift|scala|perl|bash|markdown|unicode|latex"
    r"|celsius|fahrenheit|kelvin|internet|web|god)\Z",
    re.IGNORECASE,
)
"""Words with a capital that name no one: often how to answer."""
_GERMAN = re.compile(
    r"\b(?:und|ist|nicht|bitte|eine?[nmrs]?|mir|ich|auf|keine?[nmrs]?|für|wie|sie|du|gehört|heißt|der|das|dem|zu)\b",
    re.IGNORECASE,
)
_GERMAN_FACT = re.compile(r"\b(?:ist|sind|war|waren|heißt|heisst|gehört|wohnt|kommt)\b", re.IGNORECASE)
_GERMAN_MANNER = re.compile(r"\b(?:bitte|zu|keine?[nmrs]?|nicht|lieber|mehr|weniger)\b", re.IGNORECASE)


def teachable(words: str, view: JudgeView) -> str:
    """The words without the sentences that hold what only the person could have known, or that speak of
    hints; empty if too little is left. Words without such sentences come back as they are."""
    seen: set[str] = set()

    def unseen(value: str) -> bool:
        if not seen:
            seen.update(("", *_tokens(_shown(view))))
        return not seen.issuperset(_TOKEN.findall(value.casefold()))

    sentences = [match.group() for match in _SENTENCE.finditer(words)]
    kept = [each for each in sentences if not (speaks_of_hints(each) or _known_to_them_alone(each, unseen))]
    if len(kept) == len(sentences):
        return words
    left = "".join(kept).strip()
    return left if long_enough(left) else ""


def holds_value(words: str) -> bool:
    """Whether any of the words is a name, a number, a date or an address that does not say how to answer."""
    return any(_known_to_them_alone(match.group(), lambda value: True) for match in _SENTENCE.finditer(words))


def _shown(view: JudgeView) -> Iterable[str]:
    """The text that the model had read when it answered, and its answer."""
    yield view.request
    for tool in view.tools:
        yield str(tool)
    for message in (*view.context, view.response):
        yield message.content or ""
        for call in message.tool_calls:
            yield f"{call.name} {call.arguments}"


def _tokens(texts: Iterable[str]) -> Iterable[str]:
    for text in texts:
        yield from _TOKEN.findall(text.casefold())


def _known_to_them_alone(sentence: str, unseen: Callable[[str], bool]) -> bool:
    """Whether a sentence holds a value that the model had not seen and that does not say how to answer."""
    rest = _MEASURED.sub(" ", sentence)
    if any(unseen(match.group()) for match in _EXACT.finditer(rest)):
        return True
    rest = _EXACT.sub(" ", rest)
    personal = _PERSONAL.search(rest) is not None
    for match in _NUMBER.finditer(rest):
        digits = sum(map(str.isdigit, match.group()))
        if (digits > 2 or personal) and unseen(match.group()):
            return True
    owners = (value for match in _OWNED.finditer(rest) for value in match.groups() if value)
    if any(not _OPENERS.match(value) and unseen(value) for value in owners):
        return True
    return _CALLED.search(rest) is None and any(map(unseen, _names(rest)))


def _names(sentence: str) -> list[str]:
    """Words with a capital inside a sentence, and owners at its beginning. German gives every noun one: there
    all of a sentence that states a fact."""
    words = _WORD.findall(sentence)
    if _GERMAN.search(sentence):
        states = _GERMAN_FACT.search(sentence) and not _GERMAN_MANNER.search(sentence)
        return [word for word in words[1:] if word[0].isupper()] if states else []
    found = []
    for at, word in enumerate(words):
        bare = _POSSESSIVE.sub("", word)
        opens = at == 0 and (bare == word or _OPENERS.match(bare) is not None)
        is_name = bare[:1].isupper() and bare[1:].islower()  # no acronym, no class of a program
        if is_name and not opens and not _COMMON.match(_TOKEN.findall(bare)[0]):
            found.append(bare)
    return found
