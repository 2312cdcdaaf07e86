"""From the judge's words to a verdict: votes are parsed, hints chosen, rewards counted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from afterwit.binding.client_text import THOUGHT_TAG, without_named_blocks
from afterwit.ranges import at_least
from afterwit.text import IDEOGRAPHS
from afterwit.verdict import Question, Reads, Source, Verdict, Vote

_BOX = re.compile(r"\\boxed\{([^{}]*)\}")
_VALUE = re.compile(r"\s*([+-]?[01])\s*")
_CLOSED = re.compile(
    r"(?:[^\S\n]|[*_$`)\]}>\"'\u201d\u2019\\]|</\w+>|<\|\w+\|>)*(?:[.!?;:\u3002\uff01\uff1f]|\n|\[HINT_START\]|\Z)"
)
"""The text after a box that ends its sentence."""
LAST_LINES = 3
"""Lines with words, from the end of an answer, that may hold its box."""
MOST_WORDS = 65_536
"""Characters of an answer that are stored; one of 8,192 tokens, thought included, has half as many."""
CUT = "the answer did not come to its end"
_HINT = re.compile(r"\[HINT_START\]((?:(?!\[HINT_START\]|\[HINT_END\]).)*)\[HINT_END\]", re.DOTALL)

_CHANNEL = re.compile(r"<\|channel\|?>\s*(\w+)(?:\s*<\|message\|>)?|<channel\|>")
"""The beginning of a channel of harmony or Gemma, or the end of Gemma's thought."""

_BARE = re.compile(r"\Aanalysis(?![\s:.,;])(?:.*assistantfinal|.*)", re.DOTALL)
"""Harmony whose marks a server left out: `analysisThe person thanks.assistantfinal\boxed{1}`."""


class Accept(StrEnum):
    """How many of the valid hint votes must say +1 for hints to be kept."""

    ANY = "any"
    MAJORITY = "majority"
    """More than half."""


class Verify(StrEnum):
    """The verdicts that count."""

    OFF = "off"
    """Every one."""
    CONSISTENT = "consistent"
    """The votes on both questions are counted together: a reward on which votes differ counts only if more
    of all votes agree with it than contradict it, and hints next to votes for +1 only if more speak for a
    fault."""
    UNANIMOUS = "unanimous"
    """Only what all valid votes on a question say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRules:
    """How votes are asked for, read and counted."""

    votes: int
    """m: answers per question."""
    accept: Accept
    max_candidates: int
    quote_words: int
    """A hint that repeats this many words of the next state in a row is rejected."""
    pay_repeats: bool = False
    verify: Verify = Verify.OFF
    calibrate: bool = False
    """Whether the judge votes once if feedback decides the reward."""
    reads: Reads = field(default_factory=Reads)
    """The answers that the objective reads. Other questions are not asked."""

    def __post_init__(self) -> None:
        at_least(self, 1, "votes", "max_candidates", "quote_words")


Decided = tuple[int, Source]
"""A reward that needs no vote, and what decided it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A judge's answer to one question."""

    words: str
    finished: bool = True
    """It ended by itself. An answer that was cut, filtered or broken off is an invalid vote."""


def evaluation_vote(answer: Answer, question: Question = Question.EVALUATION) -> Vote:
    """The last `\\boxed{..}` outside thoughts, if it holds 1, -1 or 0 and closes an answer that came to its
    end; else an invalid vote."""
    if not answer.finished:
        return Vote(question=question, words=_kept(answer), value=None, rejected=CUT)
    said = outside_thoughts(answer.words)
    boxed = list(_BOX.finditer(said))
    return Vote(question=question, words=_kept(answer), value=_boxed(boxed[-1], said) if boxed else None)


def hint_vote(answer: Answer, said: Iterable[str], *, quote_words: int) -> Vote:
    """Exactly one box, 1 or -1, and with 1 a hint between its marks. `said` are the next state's texts.

    A hint with a fault makes the vote invalid, with the fault as the reason; so does an answer that did not
    come to its end.
    """

    def vote(value: int | None, hint: str | None = None, rejected: str | None = None) -> Vote:
        words = _kept(answer)
        return Vote(question=Question.HINT, words=words, value=value, hint=hint, rejected=rejected)

    if not answer.finished:
        return vote(None, rejected=CUT)
    told = outside_thoughts(answer.words)
    bare = _HINT.sub("\n", told)
    boxed = list(_BOX.finditer(bare))
    value = _boxed(boxed[0], bare) if len(boxed) == len(_BOX.findall(told)) == 1 else None
    if value != 1:
        return vote(value or None)
    hint = (_HINT.findall(told) or [""])[-1].strip()
    fault = hint_fault(hint, said, quote_words=quote_words)
    return vote(1, hint) if fault is None else vote(None, rejected=fault)


def harm_found(answer: Answer) -> bool:
    """Whether a whole answer refuses an instruction as harmful. No other word in its last box does."""
    boxed = _BOX.findall(outside_thoughts(answer.words))
    return answer.finished and bool(boxed) and boxed[-1].strip().casefold() == "refuse"


def outside_thoughts(words: str) -> str:
    """The text outside the thoughts. One of a thought's two marks may be missing: without the first, the
    thought is all text before the second; without the second, all text after the first."""
    said = _BARE.sub("", words)
    channels = list(_CHANNEL.finditer(said))
    if channels:
        last = channels[-1]
        said = said[last.end() :] if last[1] in (None, "final") else ""
    said = without_named_blocks(said, THOUGHT_TAG, "")
    ends = [tag.end() for tag in THOUGHT_TAG.finditer(said) if tag[1]]
    said = said[ends[-1] :] if ends else said
    begun = THOUGHT_TAG.search(said)
    return said if begun is None else said[: begun.start()]


def _kept(answer: Answer) -> str:
    """The words to store: of a very long answer, its beginning and its end, which holds the vote."""
    words, half = answer.words, MOST_WORDS // 2
    return words if len(words) <= MOST_WORDS else f"{words[:half]}\n[...]\n{words[-half:]}"


def _boxed(box: re.Match[str], answer: str) -> int | None:
    """The number in a box that ends its sentence, in the answer's last lines; else None."""
    value = _VALUE.fullmatch(box[1])
    after = sum(bool(line.strip()) for line in answer[box.end() :].split("\n")[1:])
    if value is None or after >= LAST_LINES or not _CLOSED.match(answer, box.end()):
        return None
    return int(value[1])


def reward(values: Iterable[int | None]) -> int:
    """The most frequent valid vote; a tie for the top or no valid vote gives 0."""
    ranked = Counter(value for value in values if value is not None).most_common(2)
    if not ranked or (len(ranked) == 2 and ranked[0][1] == ranked[1][1]):
        return 0
    return ranked[0][0]


def hints(votes: Sequence[Vote], rules: VoteRules) -> tuple[str, ...]:
    """The accepted hints, shortest first; none if too few valid hint votes say +1."""
    valid = [vote for vote in votes if vote.question is Question.HINT and vote.value is not None]
    found = [vote.hint for vote in valid if vote.hint is not None]
    if rules.accept is Accept.MAJORITY and 2 * len(found) <= len(valid):
        return ()
    if rules.verify is Verify.UNANIMOUS and len(found) < len(valid):
        return ()
    return select_candidates(found, max_candidates=rules.max_candidates, longest=rules.reads.keeps_longest)


def select_candidates(hints: Iterable[str], *, max_candidates: int, longest: bool) -> tuple[str, ...]:
    """Distinct hints, shortest first, at most `max_candidates`; `longest` keeps only the longest of all.

    Equal lengths keep the order in which they came, and the first of the longest wins.
    """
    candidates = sorted(dict.fromkeys(hints), key=len)
    if longest and candidates:
        return (max(candidates, key=len),)
    return tuple(candidates[:max_candidates])


def tally(votes: Sequence[Vote], rules: VoteRules, decided: Decided | None = None) -> Verdict:
    """The verdict of these votes. A reward in `decided` counts instead of the votes."""
    rewards = [vote.value for vote in votes if vote.question is Question.EVALUATION]
    # how many more votes, on both questions, say that something was wrong than that nothing was
    fault_signs = {Question.EVALUATION: -1, Question.HINT: 1}
    faults = sum(fault_signs.get(vote.question, 0) * (vote.value or 0) for vote in votes)
    found = reward(rewards)
    is_split = len(set(rewards) - {None}) > 1
    is_doubtful = rules.verify is Verify.UNANIMOUS or (
        rules.verify is Verify.CONSISTENT and found * faults >= 0
    )
    voted = 0 if is_split and is_doubtful else found
    decided_reward, source = decided or (voted, Source.VOTES)
    praised = rules.verify is Verify.CONSISTENT and found == 1 and faults <= 0
    accepted = () if praised and decided is None else hints(votes, rules)
    return Verdict(reward=decided_reward, source=source, hints=accepted, votes=tuple(votes))


MIN_CHARS = 11
"""A hint needs more than ten characters; an ideograph counts as two."""
_TERM = re.compile(
    r"(?<![^\W_])(?:type|typing|query|index|join|lock|table|resource|optimi[sz]er|compiler|branch|planner"
    r"|size|length|font|early|prefetch|preload)[ _-]hint(?:s|ed|ing)?(?![^\W_])",
    re.IGNORECASE,
)
_TALK = re.compile(r"(?<![^\W_])(?:hint(?:s|ed|ing)?|hindsight)(?![^\W_])", re.IGNORECASE)
"""The words, unless a letter or digit touches them."""
_OTHER_TALK = re.compile(
    r"(?<!\w)(?:Hinweis(?:e[ns]?|es)?|pistas?|dicas?|подсказ\w+)(?!\w)|ヒント|힌트"
    r"|(?:indice|indication|astuce)s? (?:(?:le |l['\u2019]|ci-)?"
    r"(?:di[ts]|disent|indique|sugg[eè]re|précise|dessus|fourni|donné|propose))"
    r"|(?:après|selon|suivant|suivez|suis|comme) (?:l['\u2019]|cet |les |ces )(?:indice|indication|astuce)"
    r"|(?:根据|按照|按|依照|依据|遵循|参考|如|该|此|这个|上述|给出的|提供的)(?:的|这个|该|上述|以上)?提示"
    r"|提示(?:所|中|里|说|指出|要求|建议|告诉|的内容|[:：])",
    re.IGNORECASE,
)
"""The same in German, Spanish, Portuguese, Russian, Japanese and Korean. In French and Chinese the words mean
other things in programs ("l'indice 0"): only where one is followed or makes a statement."""
_FILE = re.compile(r"\.(?:py|pyi|js|ts|tsx|json|toml|ya?ml|md|txt|csv|sql|sh|rs|go|c|h|cpp|java|html|css)\Z")
_ASSIGNMENT = re.compile(r"[\w.]+=[^\s=]")
_WORD = re.compile(rf"[{IDEOGRAPHS}]|[^\s{IDEOGRAPHS}]+")
_IDEOGRAPH = re.compile(rf"[{IDEOGRAPHS}]")
_EDGES = "\"'`.,;:!?()[]{}<>*\u201c\u201d\u2018\u2019\u2026\u3001\u3002\uff0c\uff01\uff1f"


def speaks_of_hints(hint: str) -> bool:
    """Whether the hint names hints or hindsight as such.

    Programming terms ("type hints"), paths, options (`--hint`) and assignments (`hint=3`) may hold
    the word.
    """

    def is_code(word: str) -> bool:
        path = word.startswith(("/", "./", "../", "~/", "--")) or _FILE.search(word[-8:]) is not None
        return path or _ASSIGNMENT.match(word) is not None

    words = " ".join(word for word in hint.split() if not is_code(word.strip(_EDGES)))
    return _TALK.search(_TERM.sub(" ", words)) is not None or _OTHER_TALK.search(words) is not None


def quotes(hint: str, said: Iterable[str], *, words: int) -> bool:
    """Whether the hint repeats `words` words in a row of the texts in `said`, or equals one of them.

    Case, white space and punctuation around words do not count; a path or an option is one word, so a quoted
    command stays below the limit. In scripts without spaces two characters count as a word.
    """
    own = _words(hint)
    runs = set(_runs(own, words))
    others = (_words(text) for text in said)
    return any(own == other or any(run in runs for run in _runs(other, words)) for other in others if other)


def _words(text: str) -> list[str]:
    stripped = (word.strip(_EDGES) for word in _WORD.findall(text.casefold()))
    return [word for word in stripped if word]


def _runs(words: list[str], limit: int) -> Iterator[tuple[str, ...]]:
    """For each first word, the shortest run that weighs `limit`. Two texts share a run of that weight if and
    only if they share one of these."""
    weights = [0.5 if _IDEOGRAPH.fullmatch(word) else 1.0 for word in words]
    end, weight = 0, 0.0
    for begin, own in enumerate(weights):
        while weight < limit and end < len(words):
            weight += weights[end]
            end += 1
        if weight < limit:
            return
        yield tuple(words[begin:end])
        weight -= own


def long_enough(hint: str) -> bool:
    """Whether it can be more than a yes or a no."""
    return len(hint.strip()) + len(_IDEOGRAPH.findall(hint)) >= MIN_CHARS


def hint_fault(hint: str, said: Iterable[str], *, quote_words: int) -> str | None:
    """Why the hint is rejected, in words; None if it is good."""
    if not long_enough(hint):
        return f"hint shorter than {MIN_CHARS} characters"
    if speaks_of_hints(hint):
        return "hint speaks of hints"
    if quotes(hint, said, words=quote_words):
        return "hint quotes the next state"
    return None
