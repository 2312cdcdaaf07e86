"""Secrets in what was said: found, and replaced. Pure.

patterns   what keys, card numbers and e-mail addresses look like
redaction  which of them are looked for, in texts and in turns
"""

from afterwit.core.redaction.redaction import Redaction

__all__ = ["Redaction"]
