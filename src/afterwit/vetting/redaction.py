"""Secrets in texts and turns: found, and replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from afterwit.byte_cache import ByteCache
from afterwit.turn import Message

Match = re.Match[str]
SecretKind = Literal["keys", "cards", "emails"]
NUMBERS = {int, float}
OWN = "own"
"""The kind of secrets that the user's patterns find."""

_KEY = re.compile(
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bgh[pousr]_[A-Za-z0-9]{36,255}|\bgithub_pat_[A-Za-z0-9_]{22,255}|\bglpat-[\w-]{20,64}"
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,250}"
    r"|\bsk-[A-Za-z0-9_-]{20,250}|\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,250}"
    r"|\bAIza[\w-]{35}|\bhf_[A-Za-z0-9]{30,60}|\bnpm_[A-Za-z0-9]{36}|\bpypi-[\w-]{50,250}"
    r"|\baw-[A-Za-z0-9_-]{20,100}"
    r"|\beyJ[\w-]{10,2000}\.eyJ[\w-]{10,4000}\.[\w-]{10,1000}"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[^-]{1,8000}-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
    r"|\b[a-z][a-z0-9+.-]{1,20}://(?P<user>[^\s/:@]{1,100}):(?P<password>[^\s/@]{3,200})@"
)
_SAMPLE = re.compile(
    r"example|sample|dummy|placeholder|your[-_]|(.)\1{7}|12345678|abcdefgh|eyJzdWIiOiIxMjM0NTY3ODkw"
    r"|-----\W{0,64}-----",
    re.IGNORECASE,
)
"""Keys of documentation: words, long repetitions, counting, the token of jwt.io, and no letter between the
marks of a private key."""
_SAMPLE_PASSWORD = re.compile(
    r"[<$%{\[*].*|.*(?:password|passwd|changeme|example|x{3}).*|pass|secret|postgres|root|admin|guest|test",
    re.IGNORECASE,
)
_CARD = re.compile(r"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w.-])")
_ISSUERS = re.compile(r"4|5[1-5]|2[2-7]|3[47]|6(?:011|5)|35")
"""First digits of the large issuers."""
_EMAIL = re.compile(
    r"(?<!\w)\w[\w.+-]{0,63}@(?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,24}\b"
    r"(?![\w.-]{0,255}:(?:[~/]|[\w.-]{1,100}/))"  # `scp` names a file on a machine
)
_NO_PERSON = re.compile(
    r"(?:git|hg|svn|no-?reply)@.*|.*@(?:"
    r"(?:.{1,200}\.)?(?:example\.(?:com|org|net)|example|test|invalid)"
    r"|.*\.(?:local|localdomain|internal|intranet|lan|home|corp|private|arpa)"
    r"|.*\.(?:png|jpe?g|gif|svg|webp|ico|css|jsx?|tsx?|html?|json|ya?ml|toml|xml|csv|txt|pdf|t?gz|whl|lock)"
    r"|v?\d+\.\d+.*|users\.noreply\..*)",
    re.IGNORECASE,
)
"""Texts that only have the form of an address: repositories, names reserved for examples (RFC 2606) and for
private networks, files such as `icon@2x.png`, and versions of packages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """Secrets that never train, and that exports of training data replace."""

    kinds: tuple[SecretKind, ...] = ("keys", "cards", "emails")
    """API keys and tokens, card numbers, e-mail addresses. Leave out `emails` if your agents write mail."""
    patterns: tuple[str, ...] = ()
    """Regular expressions of your own secrets, such as `"ACME-[0-9]{8}"`. Bound their repetitions,
    because they run over every response."""

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in PATTERNS:
                raise ValueError(f"kinds has {kind!r}, which is none of {', '.join(PATTERNS)}")
        for pattern in self.patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"patterns has {pattern!r}, which is not a regular expression: {error}"
                ) from error

    def found(self, texts: Iterable[str]) -> bool:
        """Whether any of these texts holds a secret."""
        return any(self.redacted(text) != text for text in texts)

    def in_message(self, message: Message) -> bool:
        """Whether a message holds a secret: in its text, its reasoning or its calls."""
        arguments = (call.arguments for call in message.tool_calls)
        return self.found([message.content or "", message.reasoning or "", *arguments])

    def redacted(self, text: str) -> str:
        """The text with a mark in the place of each secret, such as `[redacted: keys]`."""
        return _redacted((self, text))

    def redacted_json(self, value: Any) -> Any:
        """JSON with every text redacted; names of fields stay."""
        if isinstance(value, str):
            return self.redacted(value)
        if isinstance(value, dict):
            return {name: self.redacted_json(item) for name, item in value.items()}
        if not isinstance(value, list | tuple) or NUMBERS.issuperset(map(type, value)):
            return value
        return [self.redacted_json(item) for item in value]


def _marked(named: tuple[Redaction, str]) -> str:
    redaction, text = named
    wanted: list[tuple[str, re.Pattern[str], Callable[[Match], bool]]]
    wanted = [(kind, *PATTERNS[kind]) for kind in redaction.kinds]
    wanted += [(OWN, re.compile(pattern), bool) for pattern in redaction.patterns]
    for kind, pattern, is_one in wanted:

        def mark(match: Match, kind: str = kind, is_one: Callable[[Match], bool] = is_one) -> str:
            return f"[redacted: {kind}]" if is_one(match) else match.group()

        text = pattern.sub(mark, text)
    return text


_redacted = ByteCache(_marked, most_bytes=16 << 20, size=lambda named, text: len(named[1]) + len(text))
"""A conversation's texts are in the prompt of each of its turns: they are searched once."""


def _is_key(match: Match) -> bool:
    """Unless it is one of documentation, or a password that everyone knows."""
    password = match["password"]
    if password is None:
        return _SAMPLE.search(match.group()) is None
    return password != match["user"] and _SAMPLE_PASSWORD.fullmatch(password) is None


def _is_card(match: Match) -> bool:
    """By the issuer's digits and the check digit (Luhn)."""
    digits = "".join(sign for sign in match.group() if sign.isdigit())
    doubled = sum(sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return _ISSUERS.match(digits) is not None and (sum(map(int, digits[::-2])) + doubled) % 10 == 0


PATTERNS: Mapping[str, tuple[re.Pattern[str], Callable[[Match], bool]]] = {
    "keys": (_KEY, _is_key),
    "cards": (_CARD, _is_card),
    "emails": (_EMAIL, lambda match: _NO_PERSON.fullmatch(match.group()) is None),
}
"""By kind: the pattern, and whether a match really is one."""
