"""A home whose store is a PostgreSQL database: every command finds it by the setting."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from afterwit.build import store_of_home
from afterwit.cli.app import main
from afterwit.errors import SettingError
from afterwit.home.home import store_url
from afterwit.store import open_store
from afterwit.store.sqlite import SqliteStore
from tests.store.examples import add
from tests.store.postgresql.server import Server, server


@pytest.fixture(scope="module")
def cluster() -> Server:
    return server()


def home_at(folder: Path, url: str) -> Path:
    folder.mkdir()
    (folder / "config.toml").write_text(f'[store]\nurl = "{url}"\n')
    return folder


@pytest.mark.cluster
def test_commands_use_the_store_that_the_home_names(
    cluster: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = home_at(tmp_path / "home", cluster.url(cluster.empty_schema()))
    with pytest.raises(SystemExit):
        main(["turns", "--home", str(home)])
    assert "there is no store at store.url: start `afterwit serve` first" in capsys.readouterr().err
    with store_of_home(home, make=True) as store:
        add(store, "t-one")
    with pytest.raises(SystemExit) as ended:
        main(["turns", "--home", str(home)])
    assert ended.value.code in (None, 0)
    assert "t-one" in capsys.readouterr().out
    assert sorted(path.name for path in home.iterdir()) == ["config.toml"]


@pytest.mark.cluster
def test_a_server_that_does_not_answer_is_named_without_its_password(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = home_at(tmp_path / "home", f"postgresql://me:secret@/db?host={tmp_path}")
    with pytest.raises(SystemExit):
        main(["turns", "--home", str(home)])
    said = capsys.readouterr().err
    assert f"postgresql://{tmp_path}/db does not answer" in said
    assert "secret" not in said


def test_an_unknown_kind_of_store_is_refused_with_those_there_are(tmp_path: Path) -> None:
    home = home_at(tmp_path / "home", "mysql://me:secret@host/db")
    with pytest.raises(SettingError, match=r"no store of the kind mysql; known: sqlite, postgresql"):
        with store_of_home(home):
            pass


def test_a_file_elsewhere_is_a_store_too(tmp_path: Path) -> None:
    SqliteStore.open(tmp_path / "elsewhere.db", fingerprint=None).close()
    home = home_at(tmp_path / "home", f"sqlite:{tmp_path / 'elsewhere.db'}")
    with store_of_home(home) as store:
        add(store, "a")
    assert not (home / "store.db").exists()


def test_a_homes_store_is_of_a_kind_that_can_be_opened(tmp_path: Path) -> None:
    with closing(open_store(store_url(tmp_path), fingerprint=None, synchronous="NORMAL")) as store:
        assert store.counts().states == {}
