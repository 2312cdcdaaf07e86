"""Run every benchmark, or those that are named, and keep their results as JSON.

`python -m benchmarks [NAME ...] [--out FOLDER]`
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NOT_QUESTIONS = {"__init__", "__main__", "measure"}


def main() -> None:
    names = sorted({path.stem for path in HERE.glob("*.py")} - NOT_QUESTIONS)
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(names)}; none: all")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"))
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(names):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    chosen.out.mkdir(parents=True, exist_ok=True)
    failed = [name for name in chosen.names or names if not ran(name, chosen.out / f"{name}.json")]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def ran(name: str, out: Path) -> bool:
    """Run one benchmark in a process of its own; whether it ended well."""
    print(f"\n== {name}", flush=True)
    command = [sys.executable, "-m", f"benchmarks.{name}", "--out", str(out)]
    return subprocess.run(command, cwd=HERE.parent, check=False).returncode == 0


if __name__ == "__main__":
    main()
