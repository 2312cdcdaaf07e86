"""A box: its commands and files, and what they cannot do from inside, whatever they try."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from afterwit_atropos.sandbox.box import BoxEnded, open_box
from afterwit_atropos.sandbox.inside.files import SEEN_AS
from afterwit_atropos.sandbox.isolation import BoxLimits, IsolationMissing, bubblewrap, find_isolation
from plugins.atropos.tests.sandbox.boxes import here, isolated, python

MIB = 1 << 20
PATIENT = BoxLimits(seconds=120, cpu_seconds=60)
"""For commands that end by themselves: a busy machine is not what is tested."""


def processes_with(mark: str) -> list[str]:
    """Processes of the whole machine that have a text in their command line."""
    listed = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if mark in line]


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def there(folder: str) -> bool:
    """Whether this machine has such a folder."""
    return Path(folder).is_dir()


async def seen(mark: str, there: bool) -> None:
    """Wait until such a process is there, or is not."""
    async with asyncio.timeout(60):
        while bool(processes_with(mark)) != there:  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.2)


@isolated
async def test_a_command_leaves_its_files_to_the_next_and_a_shell_reads_it() -> None:
    async with open_box(here(), PATIENT) as box:
        await box.write(f"{SEEN_AS}/a/one.py", "print(40 + 2)")
        ran = await box.run(["sh", "-c", "python a/one.py | tee out.txt; exit 3"])
        assert (ran.status, ran.output, ran.ended_for) == (3, "42\n", None)
        assert await box.read("out.txt") == "42\n"


@isolated
async def test_a_command_that_cannot_start_has_status_127() -> None:
    async with open_box(here(), PATIENT) as box:
        assert (await box.run(["no-such-command"])).output == "no-such-command: command not found\n"
        assert (await box.run([])).status == 127


@isolated
async def test_a_box_has_no_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        async with open_box(here(), PATIENT) as box:
            ran = await python(box, f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)")
            assert ran.status == 1
            assert "Error" in ran.output
            assert (await python(box, "import socket; print(socket.if_nameindex())")).output in (
                "[(1, 'lo')]\n"
            )


@isolated
async def test_a_box_has_a_root_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    async with open_box(here(), PATIENT) as box:
        ran = await box.run(
            ["cat", str(tmp_path / "secret.txt"), "/etc/passwd", f"/proc/{os.getpid()}/environ"]
        )
        assert ran.output.count("No such file") == 3
        assert (await box.run(["ls", str(Path.home())])).output.split() in (
            [],
            ["ls:", "cannot", "access", f"'{Path.home()}':", "No", "such", "file", "or", "directory"],
        )
        for place in ("/x", "/usr/x", "/dev/x", "/box/x", "/box/inside/x"):
            assert (await box.run(["sh", "-c", f"echo x > {place}"])).status != 0, place


@isolated
async def test_a_package_with_hidden_tests_that_lies_in_the_system_is_not_in_the_box() -> None:
    async with open_box(bubblewrap(hidden=Path("/usr/share")), PATIENT) as box:
        assert "share" in (await box.run(["ls", "/usr"])).output.split()
        assert (await box.run(["ls", "-A", "/usr/share"])).output == ""
        assert (await box.run(["sh", "-c", "echo x > /usr/share/x"])).status != 0


@isolated
async def test_the_environment_of_the_parent_is_nowhere_in_the_box(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERWIT_SECRET", "hidden")
    async with open_box(here(), PATIENT) as box:
        ran = await box.run(["sh", "-c", "env; cat /proc/*/environ"])
        assert "hidden" not in ran.output
        assert "/proc/1/environ: Permission denied" in ran.output


@isolated
async def test_links_out_of_the_box_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    async with open_box(here(), PATIENT) as box:
        await box.run(
            ["sh", "-c", f"ln -s {tmp_path} folder; ln -s /proc/self/fd/1 out; ln -s /etc etc; mkfifo pipe"]
        )
        for path in (
            "folder/secret.txt",
            "out",
            "etc/alternatives",
            "../etc/ld.so.cache",
            "/etc/passwd",
            "pipe",
        ):
            with pytest.raises(OSError, match=r"outside the workspace|not a file|no such"):
                await box.read(path)
            with pytest.raises(OSError, match=r"outside the workspace|not a file"):
                await box.write(path, "x")
    assert (tmp_path / "secret.txt").read_text() == "secret"


@isolated
async def test_nothing_that_a_command_started_outlives_it_setsid_or_not() -> None:
    mark = f"afterwit-left-{os.getpid()}"
    async with open_box(here(), PATIENT) as box:
        code = f"(exec -a {mark} sleep 600) & setsid bash -c 'exec -a {mark} sleep 600' & echo started"
        assert (await box.run(["bash", "-c", code])).output == "started\n"
        listed = (await box.run(["ps", "ax", "-o", "args"])).output
        assert "sleep" not in listed
        assert processes_with(mark) == []


@isolated
async def test_process_1_survives_whatever_is_sent_to_it() -> None:
    async with open_box(here(), PATIENT) as box:
        await box.write("kept.txt", "kept")
        await python(
            box, "import os, signal\nfor n in range(1, 65):\n  if n != 32 and n != 33: os.kill(1, n)"
        )
        assert (await box.run(["bash", "-c", "kill -9 1; kill -STOP 1; kill -9 -1; kill -9 $$"])).status == -9
        assert (await box.run(["bash", "-c", "echo forged > /proc/1/fd/1"])).status == 1
        assert await box.read("kept.txt") == "kept"


@isolated
async def test_time_is_up_for_a_command_and_for_what_it_started() -> None:
    mark = f"afterwit-time-{os.getpid()}"
    async with open_box(here(), BoxLimits(seconds=0.5)) as box:
        ran = await box.run(["bash", "-c", f"(setsid bash -c 'exec -a {mark} sleep 600') & sleep 600"])
        assert (ran.status, ran.ended_for) == (-9, "time")
        assert processes_with(mark) == []


@isolated
async def test_cpu_time_is_counted_over_all_processes() -> None:
    async with open_box(here(), BoxLimits(seconds=300, cpu_seconds=0.4)) as box:
        ran = await box.run(["bash", "-c", "for i in 1 2 3; do (while :; do :; done) & done; wait"])
        assert ran.ended_for == "cpu"
        ran = await box.run(
            ["bash", "-c", "while :; do bash -c 'for ((i=0; i<9999; i++)); do :; done'; done"]
        )
        assert ran.ended_for == "cpu"


@isolated
async def test_memory_is_counted_over_all_processes() -> None:
    limits = BoxLimits(seconds=300, cpu_seconds=200, memory_bytes=200 * MIB)
    async with open_box(here(), limits) as box:
        assert "MemoryError" in (await python(box, "bytearray(1 << 30)")).output
        several = """
            import os, time
            for _ in range(8):
                if os.fork() == 0:
                    held = bytearray(os.urandom(1 << 20)) * 60
                    time.sleep(600)
            time.sleep(600)
        """
        assert (await python(box, several)).ended_for == "memory"


UNSEEN = {
    "a file without a name": "import os; os.memfd_create('x')",
    "shared memory that is unmapped but for a page": "import mmap; mmap.mmap(-1, 1 << 20)",
    "the same of /dev/zero": "import os, mmap; mmap.mmap(os.open('/dev/zero', os.O_RDWR), 1 << 20)",
}


@isolated
@pytest.mark.parametrize("how", UNSEEN)
async def test_no_memory_that_no_process_seems_to_hold(how: str) -> None:
    async with open_box(here(), PATIENT) as box:
        assert "PermissionError" in (await python(box, UNSEEN[how])).output


@isolated
async def test_zeros_are_read_as_elsewhere() -> None:
    async with open_box(here(), PATIENT) as box:
        assert (await box.run(["sh", "-c", "head -c 3 /dev/zero | od -An -tx1"])).output == " 00 00 00\n"


@isolated
async def test_what_sockets_hold_is_memory_too() -> None:
    filled = """
        import socket, time
        held = []
        while True:
            held += socket.socketpair()
            held[-1].setblocking(False)
            try:
                while True: held[-1].send(bytes(65536))
            except BlockingIOError: pass
            if len(held) > 240: time.sleep(600)
    """
    limits = BoxLimits(seconds=300, cpu_seconds=200, memory_bytes=60 * MIB)
    async with open_box(here(), limits) as box:
        assert (await python(box, filled)).ended_for == "memory"


FAMILIES = ("AF_VSOCK", "AF_ALG", "AF_PACKET")


@isolated
@pytest.mark.parametrize("family", FAMILIES)
async def test_no_socket_goes_around_the_network(family: str) -> None:
    code = f"import socket; socket.socket(socket.{family}, socket.SOCK_STREAM)"
    async with open_box(here(), PATIENT) as box:
        assert "PermissionError" in (await python(box, code)).output


@isolated
async def test_process_1_cannot_be_starved_from_within() -> None:
    starving = """
        import os, resource
        for starve in (
            lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0)),
            lambda: resource.prlimit(1, resource.RLIMIT_CPU, (0, 0)),
            lambda: resource.prlimit(1, resource.RLIMIT_AS, (0, 0)),
            lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)),
            lambda: os.sched_setaffinity(1, {0}),
            lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),
            lambda: os.setpriority(os.PRIO_USER, 0, 19),
        ):
            try: starve()
            except PermissionError: print("refused")
        resource.prlimit(0, resource.RLIMIT_NOFILE, (9, 9))
        os.nice(1)
    """
    async with open_box(here(), PATIENT) as box:
        ran = await python(box, starving)
        assert (ran.status, ran.output) == (0, "refused\n" * 7)
        assert (await box.run(["echo", "well"])).output == "well\n"


@isolated
async def test_forks_and_threads_come_to_an_end_for_root_too() -> None:
    async with open_box(here(), BoxLimits(seconds=300, cpu_seconds=5, processes=20)) as box:
        bomb = (
            "import os\nwhile True:\n  try: os.fork()\n  except OSError: os.write(1, b'refused'); os._exit(0)"
        )
        ran = await python(box, bomb)
        assert "refused" in ran.output or ran.ended_for in ("processes", "cpu")
        assert "sleep" not in (await box.run(["ps", "ax"])).output
        threads = """
            import threading, time
            for _ in range(100):
                threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
            print("all started")
        """
        ran = await python(box, threads)
        assert "all started" not in ran.output
        assert (await box.run(["echo", "well"])).output == "well\n"


@isolated
async def test_the_disk_of_the_machine_is_not_filled() -> None:
    limits = BoxLimits(seconds=300, cpu_seconds=200, disk_bytes=32 * MIB, file_bytes=8 * MIB, files=2000)
    async with open_box(here(), limits) as box:
        large = "with open('large', 'wb') as file:\n  while True: file.write(bytes(1 << 20))"
        assert (await python(box, large)).status != 0
        assert int((await box.run(["stat", "-c", "%s", "large"])).output) <= 8 * MIB
        for place in ("/work", "/tmp", "/dev/shm"):
            many = f"for i in $(seq 20); do head -c 4000000 /dev/zero > {place}/$i; done; rm {place}/*"
            assert "No space left" in (await box.run(["bash", "-c", many])).output, place
        small = "n = 0\nwhile True:\n  open(f'/tmp/{n}', 'w').close()\n  n += 1"
        assert (await python(box, small)).ended_for == "files"


@isolated
async def test_a_flood_of_output_is_cut_and_ended() -> None:
    async with open_box(here(), BoxLimits(seconds=300, cpu_seconds=200, output_bytes=100)) as box:
        ran = await box.run(["bash", "-c", "head -c 1000000 /dev/zero | tr '\\0' x"])
        assert (ran.output, ran.cut_bytes) == ("x" * 100, 999_900)
        ran = await box.run(["yes"])
        assert (len(ran.output), ran.ended_for) == (100, "output")


@isolated
async def test_no_mount_and_no_other_namespace_gives_a_box_more() -> None:
    async with open_box(here(), PATIENT) as box:
        for command in ("unshare -Urm true", "mount -t tmpfs none /tmp", "unshare -n true"):
            ran = await box.run(["sh", "-c", command])
            assert ran.status != 0, command
        nested = """
            import ctypes
            libc = ctypes.CDLL(None, use_errno=True)
            print(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None), ctypes.get_errno())
            print(libc.shmget(0, 4096, 0o1600), ctypes.get_errno())
            print(libc.semget(0, 9, 0o1600), ctypes.get_errno())
            print(libc.msgget(0, 0o1600), ctypes.get_errno())
        """
        assert (await python(box, nested)).output == "-1 1\n" * 4


@isolated
async def test_a_program_answers_lines_until_it_ends() -> None:
    async with open_box(here(), BoxLimits(seconds=30)) as box:
        code = "for line in iter(input, 'end'): print(line.upper(), flush=True)"
        await box.start(["python", "-c", code])
        assert [await box.ask("one"), await box.ask("two"), await box.ask("end")] == ["ONE", "TWO", None]
        assert await box.ask("three") is None
        await box.stop()
        assert await box.ask("four") is None


@isolated
async def test_a_box_that_is_closed_leaves_nothing_running() -> None:
    mark = f"afterwit-closed-{os.getpid()}"
    async with open_box(here(), PATIENT) as box:
        running = asyncio.create_task(box.run(["bash", "-c", f"exec -a {mark} sleep 600"]))
        await seen(mark, True)
        running.cancel()
    await seen(mark, False)


@isolated
async def test_a_box_dies_with_the_program_that_opened_it_and_leaves_no_file(tmp_path: Path) -> None:
    mark = f"afterwit-killed-{os.getpid()}"
    code = f"""
        import asyncio
        from afterwit_atropos.sandbox.box import BoxEnded, open_box
        from afterwit_atropos.sandbox.isolation import BoxLimits, find_isolation
        async def main():
            async with open_box(find_isolation(), BoxLimits(seconds=300)) as box:
                await box.run(["bash", "-c", "exec -a {mark} sleep 600"])
        asyncio.run(main())
    """
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(code), env=environment
    )
    await seen(f"{mark} 600", True)
    program.kill()
    await program.wait()
    await seen(f"{mark} 600", False)
    assert left_in(tmp_path) == []


@isolated
async def test_a_loop_that_ends_while_boxes_are_being_closed_waits_for_their_ends() -> None:
    code = """
        import asyncio
        from afterwit_atropos.sandbox.box import BoxEnded, open_box
        from afterwit_atropos.sandbox.isolation import find_isolation
        async def hold(opened):
            async with open_box(find_isolation()):
                opened.set()
                await asyncio.sleep(600)
        async def main(moments):
            boxes = []
            for opened in (asyncio.Event() for _ in range(3)):
                boxes.append(asyncio.create_task(hold(opened)))
                await opened.wait()
            for box in boxes:
                box.cancel()
            for _ in range(moments):
                await asyncio.sleep(0)
        for moments in range(3):  # then the loop cancels what is being closed
            asyncio.run(main(moments))
    """
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(code), stderr=asyncio.subprocess.PIPE
    )
    _, said = await program.communicate()
    assert (program.returncode, said) == (0, b"")


@isolated
async def test_a_box_that_is_gone_says_so() -> None:
    async with open_box(here(), PATIENT) as box:
        await box.close()
        with pytest.raises((BoxEnded, OSError)):
            await box.run(["true"])


async def test_an_unsafe_box_is_named_in_each_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with open_box(find_isolation(unsafe=True), PATIENT) as box:
        await box.write(f"{SEEN_AS}/one.txt", "1")
        ran = await box.run(["sh", "-c", "cat one.txt; pwd; setsid sleep 600 & exit 2"])
        assert (ran.status, ran.output[:1]) == (2, "1")
        place = ran.output[1:].strip()
        assert there(place)
        await box.start(["sh", "-c", "read line; echo $line"])
        assert await box.ask("heard") == "heard"
    assert not there(place)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert all("UNSAFE: no isolation" in line for line in lines)


async def test_an_unsafe_box_ends_what_its_commands_started() -> None:
    mark = f"afterwit-unsafe-{os.getpid()}"
    async with open_box(find_isolation(unsafe=True), BoxLimits(seconds=2.0)) as box:
        code = f"setsid bash -c 'exec -a {mark} sleep 600' & sleep 600"
        assert (await box.run(["bash", "-c", code])).ended_for == "time"
        assert processes_with(mark) == []


def test_without_isolation_it_refuses_and_says_what_to_install() -> None:
    with pytest.raises(IsolationMissing, match=r"not installed.*apt-get install bubblewrap.*--unsafe"):
        find_isolation(find=lambda name: None)


def test_limits_must_be_above_zero() -> None:
    with pytest.raises(ValueError, match="processes is 0, but must be above 0"):
        BoxLimits(processes=0)
