"""The kinds of store that can be opened."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from afterwit.errors import SettingError
from afterwit.home.home import store_url
from afterwit.store.open import STORES, open_store


def test_a_homes_store_is_of_a_kind_that_can_be_opened(tmp_path: Path) -> None:
    with closing(open_store(store_url(tmp_path), fingerprint=None, synchronous="NORMAL")) as store:
        assert store.counts().states == {}


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SettingError, match=f"no store of the kind mysql; known: {', '.join(STORES)}"):
        open_store("mysql://host/name", fingerprint=None, synchronous="NORMAL")
