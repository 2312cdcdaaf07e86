"""The judge's settings, and the prompts and rules that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from afterwit.engines.port import Weights
from afterwit.judging.exam import Mode
from afterwit.judging.hinted_prompts import Placement
from afterwit.judging.prompts import FullPrompts, ShortPrompts
from afterwit.judging.questions import JudgePrompts
from afterwit.judging.voting import Accept, Verify, VoteRules
from afterwit.ranges import above, at_least, one_of_its_choices, within
from afterwit.verdict import Reads


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """The judge, its prompts, and how its votes count."""

    enabled: bool = True
    """false: turns are recorded and wait for a judge."""
    mode: Mode = "auto"
    """`write`: the judge writes votes and hints, as published. `read`: its log-probs find complaints,
    which are the hints. `auto`: [whichever is right more often](judging.md#can-the-model-judge)."""
    client: str | None = None
    """Judge of an installed package (entry point `afterwit.judges`). Unset: `url`, or the served model."""
    url: str | None = None
    """An OpenAI-compatible base URL, such as `http://127.0.0.1:8001/v1`. Unset: the served model judges."""
    model: str | None = None
    """The judge's name at `url`, required there."""
    api_key_env: str | None = None
    """Environment variable with the key for `url`."""
    weights: Weights = Weights.BASE
    """The served weights that judge: the original ones, because a judge that trains drifts."""
    prompts: Literal["full", "short"] = "full"
    """`short` is for judges of a few million parameters, as in the demo."""
    thinking: bool = False
    """Whether the embedded judge thinks first (`enable_thinking`): better, but far slower."""
    votes: int = 3
    """Answers to each of the two questions; 3 as published."""
    temperature: float = 0.6
    """Sampling temperature of the judge; as published."""
    accept: Accept = Accept.MAJORITY
    """Valid votes that must give a hint: a `majority`, or `any` as published."""
    verify: Literal["auto", "off", "consistent", "unanimous"] = "auto"
    """The verdicts that count. `off`: all. `unanimous`: those of undivided votes. `consistent`: those whose
    votes on both questions support the reward more than they contradict it. `auto`: `consistent` while a
    fifth of the newest answers seem wrong, else `off`."""
    follow_tries: int = 2
    """Answers sampled with a hint until one follows it, by the judge; else the hint does not train. 0:
    no check."""
    siblings: bool = False
    """Whether a good answer to the same prompt teaches a bad turn without a hint (SDPO)."""
    max_candidates: int = 3
    """Hints kept per turn, shortest first; each costs a teacher pass. 3 as published."""
    quote_words: int = 8
    """A hint may not quote this many words in a row of the next state."""
    pay_repeats: bool = False
    """Whether votes may reward a tool call that repeats an earlier one, as published."""
    calibrate: bool = True
    """Whether the judge also votes, blindly, on turns with feedback, for `afterwit judges`."""
    check_every_s: float = 600.0
    """Seconds between checks of the judge."""
    placement: Placement = Placement.LAST_USER
    """The hint's place: the last user message, as published, or the `end`, which shares more of the
    prompt."""
    max_tokens: int = 1024
    """Tokens of an answer; thinking needs 4096 to 8192."""
    context_chars: int = 8000
    """Characters of the conversation before the response, the latest ones."""
    tools_chars: int = 4000
    """Characters of the list of tools."""
    response_chars: int = 8000
    """Characters of the response."""
    next_state_chars: int = 8000
    """Characters of the next state, shared among its messages."""
    max_concurrency: int = 16
    """Calls to the judge at once."""
    max_turns: int = 4
    """Turns judged at once, each with up to twice `votes` calls."""
    timeout_s: float = 120.0
    """Seconds for one answer from `url` or of `client`."""
    attempts: int = 3
    """Tries of a call before its turn waits again."""
    retry_base_s: float = 1.0
    """Seconds before the second try; doubles, with jitter."""
    retry_max_s: float = 60.0
    """Longest wait between tries, even if Retry-After is longer."""
    poll_s: float = 2.0
    """Seconds between searches for answered turns."""
    lease_s: float = 30.0
    """Seconds until another process may take a dead judge's turn."""
    body_extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields for `url`, such as `{chat_template_kwargs = {enable_thinking = false}}`."""
    body_omit: tuple[str, ...] = ()
    """Fields that `url` refuses, such as `seed`, `temperature` or `max_tokens`."""

    def __post_init__(self) -> None:
        one_of_its_choices(self)
        at_least(self, 1, "votes", "max_candidates", "quote_words", "max_tokens", "attempts")
        at_least(self, 1, "max_concurrency", "max_turns")
        at_least(self, 1, "context_chars", "tools_chars", "response_chars", "next_state_chars")
        above(self, 0, "timeout_s", "retry_base_s", "retry_max_s", "poll_s", "lease_s", "check_every_s")
        at_least(self, 0, "follow_tries")
        within(self, 0, 2, "temperature")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url is {self.url!r}, but must begin with http:// or https://")
        if self.url is not None and not self.model:
            raise ValueError("a judge at a url needs its model's name: set model too")

    def rules(self, reads: Reads) -> VoteRules:
        """How votes are asked for and counted, under an objective that reads this part of a verdict."""
        return VoteRules(
            votes=self.votes,
            accept=self.accept,
            max_candidates=self.max_candidates,
            quote_words=self.quote_words,
            pay_repeats=self.pay_repeats,
            verify=Verify.OFF if self.verify == "auto" else Verify(self.verify),
            calibrate=self.calibrate,
            reads=reads,
        )


def judge_prompts(settings: JudgeSettings) -> JudgePrompts:
    """The prompts that `judge.prompts` names."""
    if settings.prompts == "short":
        return ShortPrompts()
    return FullPrompts(
        max_tokens=settings.max_tokens,
        context_chars=settings.context_chars,
        tools_chars=settings.tools_chars,
        response_chars=settings.response_chars,
        next_state_chars=settings.next_state_chars,
    )
