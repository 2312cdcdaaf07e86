"""What the owner of the tools world says: one grammar of wordings, cut into three parts.

`train` wordings are seen in pretraining, `dev` ones were used to choose settings, `fresh` ones are for
reports. Every list is cut by position, so that each part gets wordings of every kind.
"""

from collections.abc import Sequence
from random import Random

from afterwit.apps.demo.world import Split, part

OPENERS = (
    "",
    "Stop.",
    "Hey,",
    "Wait,",
    "",
    "Hm,",
    "No,",
    "Hold on,",
    "Please,",
    "Careful:",
    "Oh,",
    "One thing:",
    "Look,",
    "Sorry, but",
    "Again,",
    "Not like that:",
    "Hey, stop,",
    "",
    "I saw that:",
    "Ah,",
    "",
    "No no,",
    "Hold it:",
    "Well,",
)

CLOSERS = (
    "",
    "We always do it that way here.",
    "Please remember that.",
    "",
    "That is our house rule.",
    "",
    "I told the others too.",
    "It matters to me.",
    "",
    "That is how things get lost.",
    "Please keep to that.",
    "That is how we do it.",
    "Next time, please.",
    "Is that so hard?",
    "That worries me.",
    "",
    "We lost work that way once.",
    "I do not want that again.",
)

COMPLAINTS: dict[str, tuple[str, ...]] = {
    "read_first": (
        "you edited {f} without reading it first",
        "read the file before you change it",
        "you changed {f} blind",
        "why did you not look at {f} before you edited it?",
        "you never read {f} before you touched it",
        "you did not look into {f} before the edit",
        "look at what is in a file before you touch it",
        "you should have opened {f} before changing it",
        "first read, then edit",
        "you did not even look at the file",
        "open the file and look before you edit",
        "you edited the file before you had read it",
        "that edit came without a look at {f}",
        "you cannot edit what you have not read",
        "an edit with no read before it is not ok",
        "I want you to see the contents before you change them",
        "you should have read {f} before the change",
        "no edit before you have seen the file",
        "how do you know what is in {f}? you did not read it",
        "show yourself the file with read before you edit it",
        "never edit a file you have not opened",
        "I saw no read of {f} before your edit",
        "changing {f} without looking at it is a bad idea",
        "you went straight to the edit and did not read {f}",
    ),
    "dry_run": (
        "you deleted {f} without a dry run",
        "do a dry run before you delete",
        "why was there no dry run before {f} went away?",
        "deleting comes after a dry run",
        "you should have done a dry run before deleting {f}",
        "there was no dry run before the delete",
        "try the delete dry before you do it for real",
        "you removed {f} for real at once, try it dry first",
        "first dry, then delete",
        "test the delete with dry_run before the real one",
        "a delete needs a dry run first",
        "I wanted a dry run before {f} was gone",
        "you did not try it with dry_run first",
        "never delete a file without the dry run",
        "show me what would be deleted before you delete it",
        "that delete was real, where was the dry run?",
        "you deleted the file at once, the dry run is missing",
        "you must try a delete dry first",
        "use dry_run the first time you delete something",
        "you did not check what would go before you deleted {f}",
        "removing {f} with no dry run is not ok",
        "the first delete call must be a dry one",
        "no delete without a dry run before it",
        "the delete should have been tried dry first",
    ),
    "backup": (
        "you overwrote {f} without a backup",
        "make a backup before you overwrite a file",
        "where is the backup of {f}?",
        "you should have copied {f} before writing over it",
        "keep a copy of the old file before you replace it",
        "no backup of {f} was made before you wrote it",
        "the old text of {f} is lost, copy it first",
        "first a copy, then the new text",
        "you wrote over {f} and kept no copy",
        "copy a file to .bak before you write over it",
        "you did not make a copy of {f} first",
        "a backup comes before you write over a file",
        "why did you not back up {f} first?",
        "never overwrite a file that has no backup",
        "you replaced {f} without a copy",
        "I need a .bak of the old file first",
        "you overwrote the old text, there is no copy of it",
        "I see no backup, and the old text is gone",
        "back up {f} before you put new text in it",
        "writing over {f} without a backup is not ok",
        "there must be a copy before you replace a file",
        "save the old one as .bak before you write the new one",
        "the old version of {f} should have been copied first",
        "you must keep the old {f} as a copy",
    ),
    "python3": (
        "use python3 and not python",
        "you ran it with python, it must be python3",
        "we only use python3 here",
        "that should have been python3",
        "why python? we run scripts with python3",
        "it is python3, not python",
        "run {f} with python3",
        "you called python, please call python3",
        "scripts are started with python3 here",
        "plain python is wrong, take python3",
        "you should have used python3 for {f}",
        "python is the wrong command, python3 is the right one",
        "never call python, only python3",
        "start it with python3 and not with python",
        "you ran {f} with python and not python3",
        "python3 is what we use to run scripts",
        "you must write python3",
        "I asked for python3 everywhere, you took python",
        "not python but python3",
        "the command is python3, you used python",
        "running {f} with python is not ok, use python3",
        "you forgot the 3 in python3",
        "take python3 to run it",
        "you used plain python for {f}, that must be python3",
    ),
    "relative": (
        "you used an absolute path",
        "use a relative path, not /work",
        "do not write /work in front of the name",
        "the path must be relative",
        "no absolute paths please, {f} was enough",
        "leave out /work, the plain name is enough",
        "why the absolute path? relative paths only",
        "paths start with the name and not with /work",
        "you wrote /work before the name, leave it out",
        "give the path without /work",
        "a relative path would have been right",
        "just the name {f}, not the whole path",
        "absolute paths break on our server",
        "I want relative paths only",
        "you should have used the relative path {f}",
        "never put /work in a path",
        "the plain path {f} was right, not the absolute one",
        "that path was absolute, it must be relative",
        "the path should have been {f} with no /work",
        "you must not use absolute paths",
        "the whole path is wrong, use the name only",
        "take relative paths, not ones from /work",
        "a path with /work in it is not ok",
        "we only use relative paths here",
    ),
}

THANKS = (
    "thanks",
    "thank you",
    "great",
    "perfect",
    "nice work",
    "that works, thanks",
    "good job",
    "looks good to me",
    "very good",
    "great, that is what I wanted",
    "thank you, that is right",
    "good work",
    "all good",
    "exactly right",
    "well done",
    "that is how I like it",
    "perfect, thank you",
    "that looks right",
    "nice, thanks",
    "yes, that is it",
    "wonderful",
    "good, that works",
    "thanks a lot",
    "great work",
    "that was right",
    "fine, thank you",
    "super",
    "just what I wanted",
    "well done, thank you",
    "nice, that works",
    "I like it",
    "ok, good",
    "yes, good",
    "that is right",
    "good",
    "yes, perfect",
)

MOVING_ON = (
    "",
    "that is all for now",
    "on to the next one",
    "",
    "I will take it from here",
    "that is all",
    "now let us do the next thing",
    "",
    "I am happy with it",
    "we can move on",
    "let us move on",
    "",
    "see you later",
    "you did it the way I like",
    "",
    "next I need something else",
    "we are done here",
    "I am happy",
)

UNCLEAR = (
    "hm, let me think",
    "one moment",
    "I will look at it later",
    "what time is it?",
    "ok, wait",
    "let me see",
    "I am back in a minute",
    "what is for lunch?",
    "wait a minute",
    "let me think",
    "how are you?",
    "I will see",
)

FAILED = (
    "that did not work: {o}",
    "the check fails: {o}",
    "it is still wrong: {o}",
    "the check says: {o}",
    "my check does not pass: {o}",
    "this is not what I asked for: {o}",
    "no, the check does not pass: {o}",
    "wrong, I get: {o}",
    "the result is wrong: {o}",
    "that fails: {o}",
    "it does not work: {o}",
    "the check did not pass: {o}",
)


def complaint(rules: Sequence[str], file: str, split: Split, rng: Random) -> str:
    """A person's words on every broken rule, the first one's file named where the wording has room for it."""
    said = [rng.choice(part(COMPLAINTS[rule], split)).format(f=file) for rule in rules]
    body = said[0] + "".join(f"{rng.choice((', and', '. Also,', ';'))} {more}" for more in said[1:])
    return _sentence(rng.choice(part(OPENERS, split)), body, rng.choice(part(CLOSERS, split)))


def approval(split: Split, rng: Random) -> str:
    """Thanks, in words, perhaps with a step onward."""
    thanks, onward = rng.choice(part(THANKS, split)), rng.choice(part(MOVING_ON, split))
    return _sentence("", thanks, onward and onward[0].upper() + onward[1:] + ".")


def failure(output: str, split: Split, rng: Random) -> str:
    """A person's words on a check that failed, with what the check printed."""
    return _sentence("", rng.choice(part(FAILED, split)).format(o=output), "")


def unclear(split: Split, rng: Random) -> str:
    """Words that say nothing about the work."""
    return _sentence("", rng.choice(part(UNCLEAR, split)), "")


def _sentence(opener: str, body: str, closer: str) -> str:
    end = "" if body[-1] in ".?!" else "."
    text = " ".join(piece for piece in (opener, body + end, closer) if piece)
    return text[0].upper() + text[1:]
