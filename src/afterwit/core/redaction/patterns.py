"""What keys, card numbers and e-mail addresses look like. Every repetition is bounded: time is linear.

Keys are known by the beginnings that their makers give them, so that no random id is one. What has no such
mark, as a password in a sentence, is not seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_KEY = re.compile(
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bgh[pousr]_[A-Za-z0-9]{36,255}|\bgithub_pat_[A-Za-z0-9_]{22,255}|\bglpat-[\w-]{20,64}"
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,250}"
    r"|\bsk-[A-Za-z0-9_-]{20,250}|\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,250}"
    r"|\bAIza[\w-]{35}|\bhf_[A-Za-z0-9]{30,60}|\bnpm_[A-Za-z0-9]{36}|\bpypi-[\w-]{50,250}"
    r"|\baw-[A-Za-z0-9_-]{20,100}"
    r"|\beyJ[\w-]{10,2000}\.eyJ[\w-]{10,4000}\.[\w-]{10,1000}"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[^-]{1,8000}-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
    r"|\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,100}:[^\s/@]{3,200}@"
)
_CARD = re.compile(r"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w.-])")
_ISSUERS = re.compile(r"4|5[1-5]|2[2-7]|3[47]|6(?:011|5)|35")
"""First digits of the large issuers."""
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,24}\b")
_EXAMPLE = re.compile(r"@(?:.{1,200}\.)?(?:example\.(?:com|org|net)|example|test|invalid)\Z", re.IGNORECASE)
"""Addresses that are nobody's (RFC 2606)."""


def _any(match: str) -> bool:
    return True


def _is_card(match: str) -> bool:
    """By the issuer's digits and the check digit (Luhn)."""
    digits = [int(sign) for sign in match if sign.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (
        _ISSUERS.match("".join(map(str, digits))) is not None and (sum(digits[::-2]) + sum(doubled)) % 10 == 0
    )


def _is_somebodys(match: str) -> bool:
    return _EXAMPLE.search(match) is None


PATTERNS: Mapping[str, tuple[re.Pattern[str], Callable[[str], bool]]] = {
    "keys": (_KEY, _any),
    "cards": (_CARD, _is_card),
    "emails": (_EMAIL, _is_somebodys),
}
"""By kind: where to look, and whether what was found is one."""
