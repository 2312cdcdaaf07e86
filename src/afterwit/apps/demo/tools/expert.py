"""How a task is done, in the owner's way or in the old way, one rule at a time; used to make
pretraining data.
"""

from collections.abc import Set

from afterwit.apps.demo.tools.rules import Step
from afterwit.apps.demo.world import Task


def plan(task: Task, follow: Set[str]) -> tuple[Step, ...]:
    """The calls that do a task, keeping the rules in `follow` and none of the others.

    The old way names new files by an absolute path and existing ones by a relative one.
    """
    about, steps = task.subject, []
    if "file" in about:
        steps += [_step("read", path=about["file"])] if "read_first" in follow else []
        steps.append(_step("edit", path=about["file"], old=about["old"], new=about["new"]))
    if "target" in about:
        steps += (
            [_step("copy", path=about["target"], to=about["target"] + ".bak")] if "backup" in follow else []
        )
        steps.append(_step("write", path=about["target"], text=about["text"]))
    if "new_file" in about:
        name = about["new_file"] if "relative" in follow else f"/work/{about['new_file']}"
        steps.append(_step("write", path=name, text=about["text"]))
    if "gone" in about:
        steps += [_step("delete", path=about["gone"], dry_run=True)] if "dry_run" in follow else []
        steps.append(_step("delete", path=about["gone"]))
    if "script" in about:
        steps.append(
            _step("run", command=f"{'python3' if 'python3' in follow else 'python'} {about['script']}")
        )
    return tuple(steps)


def _step(name: str, **arguments: object) -> Step:
    return Step(name=name, arguments=arguments)
