"""Every error Afterwit raises on purpose.

AfterwitError
├── SettingError        a setting that cannot be used: names it and says what would do
│   ├── AlreadyRunning       another process does this over the same home
│   └── IsolationMissing     nothing here isolates the commands that a model writes: says what to install
├── BoxEnded            a box of commands ended, or does not answer
├── RequestError        a client's request that cannot be served (an HTTP status and a code)
├── EngineError         the engine could not do what it was asked
│   ├── EngineUnavailable    it does not answer; asking again later may help
│   ├── RequestRefused       the request does not fit the model: it never will
│   │   └── ContextExceeded      the prompt is longer than the context
│   └── ProbeMismatch        the weights it holds are not the learner's
├── JudgeUnavailable    the judge does not answer; the turn waits
├── JudgeRefused        the judge will not answer this question, asked again or not
├── TooManyUnscored     most turns of a run of rollouts could not be scored
├── StoreError          the store refuses
│   ├── StoreMismatch        it belongs to another model or a newer Afterwit
│   ├── StoreUnavailable     it cannot take or give anything now; asking again later may help
│   │   └── StoreConflict        another process changes the same: asking again at once may help
│   ├── TurnNotFound         it has no such turn, or no longer its content
│   ├── TurnAmbiguous        several turns begin like this
│   └── IllegalMove          the table of moves has no such move
├── UpdateRefused       an optimiser step that would not be finite
├── RankFailed          another process of the learner failed in what all do together
├── RankLost            a process of the learner is gone, or out of step: all of them end
├── VersionHeld         an update that lost too much of what people approved
├── NothingLearned      there was no turn to learn from
├── VersionsUnavailable the place that machines share versions at does not answer; asking later may help
│   └── VersionsRefused      it will not do this until somebody changes something
├── VersionDamaged      a version's files cannot be read
└── VersionTaken        another process wrote the next weight version first
"""

from __future__ import annotations


class AfterwitError(Exception):
    """The root: catch it to catch all of ours and nothing else."""


class SettingError(AfterwitError):
    """A setting that cannot be used."""


class AlreadyRunning(SettingError):
    """Another process does this over the same home."""


class NobodyAnswers(SettingError):
    """No server answers at an address; it may be there later."""


class IsolationMissing(SettingError):
    """Nothing here isolates the commands that a model writes; it says what to install."""


class BoxEnded(AfterwitError):
    """A box of commands ended, or does not answer: what was in it is lost."""


class RequestError(AfterwitError):
    """A client's request that cannot be served.

    `status` is the HTTP status, `code` the machine-readable word, `param` the field at fault.
    """

    def __init__(self, status: int, code: str, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param


class EngineError(AfterwitError):
    """The engine could not do what it was asked."""


class EngineUnavailable(EngineError):
    """The engine does not answer; asking again later may help."""


class RequestRefused(EngineError):
    """The request does not fit the model, asked again or not. `field` is the field of `Generate` at fault."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class ContextExceeded(RequestRefused):
    """The prompt leaves no room for a response in the model's context."""


class ProbeMismatch(EngineError):
    """The weights in the engine do not give the learner's log-probs."""


class JudgeUnavailable(AfterwitError):
    """The judge does not answer; the turn waits. `retry_after_s` is the pause it asked for."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class JudgeRefused(AfterwitError):
    """The judge will not answer this question, asked again or not: it is too long, or refused."""


class TooManyUnscored(AfterwitError):
    """Most turns of a run of rollouts could not be scored. `reason` is that of most of them."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class StoreError(AfterwitError):
    """The store refuses."""


class StoreMismatch(StoreError):
    """The store belongs to another model or to a newer Afterwit."""


class StoreUnavailable(StoreError):
    """The store can take or give nothing now: its disk is full, or another process holds it."""


class StoreConflict(StoreUnavailable):
    """Another process changes the same now. Nothing of the call is stored: it may be made again at once."""


class TurnNotFound(StoreError):
    """The store has no such turn, or its content was pruned."""


class TurnAmbiguous(StoreError):
    """Several turns have an id that begins like this."""


class IllegalMove(StoreError):
    """The lifecycle's table has no such move."""


class UpdateRefused(AfterwitError):
    """A loss or gradient that is not finite: the step was not taken."""


class RankFailed(AfterwitError):
    """Another process of the learner failed in what all do together: it says which, and how."""


class RankLost(AfterwitError):
    """A process of the learner is gone, silent, or out of step with the others: all of them end."""


class VersionHeld(AfterwitError):
    """An update that lost too much of what people approved, as `evidence` says (an e-value): it
    becomes no version."""

    def __init__(self, words: str, *, evidence: float) -> None:
        super().__init__(words)
        self.evidence = evidence


class NothingLearned(AfterwitError):
    """There was no turn to learn from, though somebody asked to learn now."""


class VersionDamaged(AfterwitError):
    """A version's files cannot be read: it says which, and what to do."""


class VersionsUnavailable(AfterwitError):
    """The place that machines share versions at cannot take or give anything now."""


class VersionsRefused(VersionsUnavailable):
    """It will not, until somebody changes something: rights, room, the place's name."""


class NotRepeatable(AfterwitError):
    """An update cannot be run again as it was: it says why."""


class VersionTaken(AfterwitError):
    """Another process (a rollback) wrote the next version first: this one's ancestor is not the newest."""
