"""A PostgreSQL server of the tests' own: in a temporary folder, on a socket there, of no privileged user."""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from itertools import count
from pathlib import Path
from urllib.parse import urlencode

import psycopg
import pytest

WAIT_S = 120.0
"""Starting and recovering take a second; a busy machine may take long."""
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # the kernel's buffers outlive a killed server
    "max_connections": "60",
    "shared_buffers": "32MB",
    "autovacuum_naptime": "5s",
}
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def programs() -> Path | None:
    """The folder of the server's programs, the newest version's; None if this machine has none."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    found = shutil.which("initdb")
    named = [Path(found).resolve().parent] if found else []
    return next((folder for folder in (*reversed(debian), *named) if (folder / "initdb").exists()), None)


class Server:
    """Started once for a session of tests; gone when it ends, and when its process dies."""

    def __init__(self, **settings: str) -> None:
        """`settings`: besides SETTINGS, or in place of one."""
        found = programs()
        if found is None:
            pytest.skip("no PostgreSQL server here (Debian: apt-get install postgresql)")
        self._programs, self._settings = found, SETTINGS | settings
        self.folder = Path(tempfile.mkdtemp(prefix="afterwit-pg-"))
        self._user = None if os.getuid() else "nobody"
        if self._user:
            shutil.chown(self.folder, self._user)
        self._schemas = count()
        self.unused: list[str] = []
        """Schemas with a store's tables that no test uses any more."""
        self._run(
            "initdb", "-D", self._data, "-U", "afterwit", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"
        )
        self.start()
        atexit.register(self.remove)

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, user=self._user, cwd=self.folder)

    def start(self) -> None:
        """Start it, after a kill too, and wait until it answers."""
        settings = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        command = [str(self._programs / "postgres"), "-D", self._data, "-k", str(self.folder), *settings]
        deadline = time.monotonic() + WAIT_S
        while True:
            with (self.folder / "log").open("ab") as log:
                self._process = subprocess.Popen(
                    command,
                    stdout=log,
                    stderr=log,
                    user=self._user,
                    cwd=self.folder,
                    preexec_fn=_die_with_parent,
                )
            while self._process.poll() is None:
                if self._answers():
                    return
                assert time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.02)
            # some remains of a killed server are not gone yet
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url("public")).close()
        except psycopg.OperationalError:
            return False
        return True

    def url(self, schema: str) -> str:
        """Of one schema, which is one store's place."""
        settings = {
            "host": str(self.folder),
            "user": "afterwit",
            "application_name": schema,
            "options": f"-csearch_path={schema}",
        }
        return f"postgresql:///postgres?{urlencode(settings)}"

    def empty_schema(self) -> str:
        """The name of a new one."""
        name = f"store{next(self._schemas)}"
        self.do(f"CREATE SCHEMA {name}")
        return name

    def empty_store(self) -> str:
        """The name of a schema with a store's empty tables: those of an earlier test if there are any."""
        if not self.unused:
            return self.empty_schema()
        name = self.unused.pop()
        with psycopg.connect(self.url(name), autocommit=True) as connection:
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [name])
            order = [f"DELETE FROM {table}" for (table,) in tables if table != "meta"]
            kept = "DELETE FROM meta WHERE key NOT IN ('schema', 'fingerprint')"
            connection.execute("; ".join([*order, kept, "SELECT setval('turns_seq_seq', 1, false)"]))
        return name

    def do(self, sql: str) -> None:
        """Run a statement as the server's owner."""
        with psycopg.connect(self.url("public"), autocommit=True) as connection:
            connection.execute(sql)

    def drop_clients(self, schema: str) -> None:
        """End the server's processes that serve clients of a schema, and wait until they are gone."""
        self.do(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
            f" WHERE application_name = '{schema}' AND pid <> pg_backend_pid()"
        )

    def cpu_seconds(self) -> float:
        """CPU time of all its processes, those that have ended too."""
        running = (self._process.pid, *_children(self._process.pid))
        return sum(_ticks(process) for process in running) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """`kill -9` of all its processes."""
        children = _children(self._process.pid)
        for process in (self._process.pid, *children):
            _kill(process)
        self._process.wait()

    def remove(self) -> None:
        atexit.unregister(self.remove)
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGQUIT)


def _children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def _ticks(process: int) -> int:
    """Of a process and of its children that have ended, in user and system mode."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0
    return sum(map(int, fields[11:15]))


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


@cache
def server() -> Server:
    """The one of this session."""
    return Server()
