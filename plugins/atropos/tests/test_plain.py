"""Plain data comes back as it was, and nothing else comes across."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit_atropos.coding.exam.plain import decode, encode

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.complex_numbers(allow_nan=False),
)
DATA = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(st.text() | st.integers() | st.tuples(st.integers()), inner),
        st.frozensets(st.integers() | st.text()).map(set),
    ),
    max_leaves=12,
)


def kinds(value: object) -> object:
    """The types of a value and of all that it holds, in order where it has one."""
    match value:
        case list() | tuple():
            return (type(value), [kinds(each) for each in value])
        case dict():
            return (dict, [(kinds(key), kinds(each)) for key, each in value.items()])
    return type(value)


@given(DATA)
def test_what_was_sent_comes_back_types_included(value: object) -> None:
    back = decode(json.loads(json.dumps(encode(value))))
    assert back == value
    assert kinds(back) == kinds(value)


@pytest.mark.parametrize("value", [object(), len, iter([]), type, [object()], {1: object()}])
def test_what_is_no_plain_data_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="not plain data"):
        encode(value)


@pytest.mark.parametrize(
    "form", [1, 1.5, {"int": 3}, {}, {"dict": [[1]]}, {"list": []}, {"bytes": "zz"}, {"int": "9" * 9999}]
)
def test_another_form_is_refused(form: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of several kinds
        decode(form)


def test_a_value_that_holds_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(TypeError, match="nested"):
        encode(endless)
