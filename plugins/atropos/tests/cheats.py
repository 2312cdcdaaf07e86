"""Solutions of `add(a, b)` that try to pass without adding. They run in boxes only."""

CHEATS = {
    "exits early": "import os\nos._exit(0)",
    "exits when called": "import sys\ndef add(a, b): sys.exit(0)",
    "exits hard when called": "import os\ndef add(a, b): os._exit(0)",
    "prints a pass": """
        import os, sys
        def add(a, b):
            for fd in range(256):
                try: os.write(fd, b'{"failure": null}\\n')
                except OSError: pass
    """,
    "equals everything": """
        class All:
            def __eq__(self, other): return True
            def __ne__(self, other): return False
        def add(a, b): return All()
    """,
    "equals everything and is a number": """
        class All(int):
            def __eq__(self, other): return True
            def __repr__(self): return "5"
            __hash__ = int.__hash__
        def add(a, b): return All(7)
    """,
    "replaces what a runner would use": """
        import builtins, json, sys
        sys.modules["exam.plain"] = None
        json.dumps = lambda *given, **named: '{"failure": null}'
        builtins.AssertionError = builtins.Exception = SystemExit
        def add(a, b): return 0
    """,
    "kills the runner": """
        import os, signal
        def add(a, b):
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(-1, signal.SIGKILL)
    """,
    "starts a session of its own and daemons": """
        import os, time
        def add(a, b):
            if os.fork() == 0:
                os.setsid()
                time.sleep(600)
            return 0
    """,
    "forks without end": """
        import os
        def add(a, b):
            while True:
                try: os.fork()
                except OSError: pass
    """,
    "looks for the expected values": """
        import gc, glob, os, re, sys
        def add(a, b):
            texts = [str(each) for each in gc.get_objects() if isinstance(each, str)]
            for place in glob.glob("./**", recursive=True) + glob.glob("/proc/[0-9]*/environ"):
                try: texts.append(open(place).read())
                except (OSError, UnicodeDecodeError): pass
            held = "".join(texts + sys.argv + list(os.environ.values()))
            found = re.search(f"add.{a}, {b}. == ([0-9]+)", held)
            return int(found[1]) if found else None
    """,
    "answers what cannot be read": """
        import sys
        sys.setrecursionlimit(10**6)
        def add(a, b):
            nested = []
            for _ in range(10**5): nested = [nested]
            return nested
    """,
    "has no such function": "def sub(a, b): return a - b",
    "cannot be parsed": "def add(a, b:",
    "answers too much": "def add(a, b): return 'x' * (1 << 24)",
}
