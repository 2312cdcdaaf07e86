"""Plain data as JSON and back: what a solution is called with and what it answers.

Nothing but data comes across: no class, so none with an `__eq__` of its own.
"""

from __future__ import annotations

from typing import Any

MOST_DEPTH = 200


def encode(value: Any, depth: int = 0) -> Any:
    """The JSON form. Raises TypeError for anything but plain data."""
    if depth > MOST_DEPTH:
        raise TypeError(f"a value is nested more than {MOST_DEPTH} deep")

    def inner(values: Any) -> list[Any]:
        return [encode(each, depth + 1) for each in values]

    match value:
        case None | bool():
            return value
        case int():
            return {"int": int.__repr__(value)}
        case float():
            return {"float": float.__repr__(value)}
        case complex():
            return {"complex": [float.__repr__(value.real), float.__repr__(value.imag)]}
        case str():
            return str.__str__(value)
        case bytes() | bytearray():
            return {"bytes": bytes(value).hex()}
        case list():
            return inner(list.__iter__(value))
        case tuple():
            return {"tuple": inner(tuple.__iter__(value))}
        case set() | frozenset():
            return {"set": inner(value)}
        case dict():
            return {"dict": [inner(pair) for pair in dict.items(value)]}
    raise TypeError(f"{type(value).__name__} is not plain data")


def decode(form: Any) -> Any:
    """The value of a JSON form. Raises ValueError for any other form."""
    match form:
        case None | bool() | str():
            return form
        case list():
            return [decode(each) for each in form]
        case {"int": str(digits)}:
            return int(digits)
        case {"float": str(digits)}:
            return float(digits)
        case {"complex": [str(real), str(imaginary)]}:
            return complex(float(real), float(imaginary))
        case {"bytes": str(digits)}:
            return bytes.fromhex(digits)
        case {"tuple": list(values)}:
            return tuple(decode(each) for each in values)
        case {"set": list(values)}:
            return {decode(each) for each in values}
        case {"dict": list(pairs)}:
            return {decode(key): decode(value) for key, value in pairs}
    raise ValueError("this is not the form of plain data")
