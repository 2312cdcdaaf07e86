"""Every error Afterwit raises on purpose."""

from __future__ import annotations


class AfterwitError(Exception):
    """The root: catch it to catch all of ours and nothing else."""


class SettingError(AfterwitError):
    """A setting that cannot be used. The message names it, and a remedy."""


class AlreadyRunning(SettingError):
    """Another process does this over the same home."""


class NobodyAnswers(SettingError):
    """A server's address does not answer yet."""


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


class PromptTooLong(RequestError):
    """A prompt of `tokens` tokens or more, which leave no room for a response in the context."""

    def __init__(self, tokens: int, context_length: int, *, param: str) -> None:
        message = (
            f"This model's maximum context length is {context_length} tokens. "
            f"However, your messages resulted in {tokens} tokens or more."
        )
        super().__init__(400, "context_length_exceeded", message, param=param)
        self.tokens = tokens
        self.context_length = context_length


class EngineError(AfterwitError):
    """The engine could not serve a request."""


class EngineUnavailable(EngineError):
    """The engine does not answer; a later attempt may succeed."""


class RequestRefused(EngineError):
    """The request does not fit the model and never will. `field` is the field of `Generate` at fault."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class ContextExceeded(RequestRefused):
    """The prompt leaves no room for a response in the model's context."""


class ProbeMismatch(EngineError):
    """The weights in the engine do not give the learner's log-probs."""


class JudgeUnavailable(AfterwitError):
    """The judge does not answer; the turn waits. `retry_after_s` is the pause that it requested."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class JudgeRefused(AfterwitError):
    """The judge will never answer this question: it is too long, or refused."""


class QuestionTooLong(JudgeRefused):
    """The question does not fit the judge's context: a shorter one may."""


class StoreError(AfterwitError):
    """The store refuses."""


class StoreMismatch(StoreError):
    """The store belongs to another model or to a newer Afterwit."""


class StoreUnavailable(StoreError):
    """The store can neither read nor write now: its disk is full, or another process locks it."""


class StoreLost(StoreUnavailable):
    """The connection to the database is gone. A call that was being stored may be stored: repeat it soon."""


class StoreConflict(StoreUnavailable):
    """Another process changes the same rows now. Nothing of the call is stored: repeat it at once."""


class TurnNotFound(StoreError):
    """The store does not have this turn, or its content was pruned."""


class UpdateRefused(AfterwitError):
    """A loss or gradient that is not finite: the step was not taken."""


class RankLost(AfterwitError):
    """A process of the learner ended, is silent, or is out of step with the others: every process ends."""


class VersionHeld(AfterwitError):
    """An update that lost too much of the approved behaviour, by `evidence` (an e-value). It is discarded."""

    def __init__(self, words: str, *, evidence: float) -> None:
        super().__init__(words)
        self.evidence = evidence


class NothingLearned(AfterwitError):
    """A command that should learn now found no turn to learn from."""


class VersionDamaged(AfterwitError):
    """A version's files cannot be read. The message names them, and a remedy."""


class VersionsUnavailable(AfterwitError):
    """The place where machines share versions can neither read nor write now."""


class VersionsRefused(VersionsUnavailable):
    """The place of shared versions will refuse until its rights, its room or its name are corrected."""


class DiskFull(VersionsUnavailable):
    """This machine's own disk has no room for the files of a version."""


class NotRepeatable(AfterwitError):
    """An update cannot be replayed. The message gives the reason."""


class VersionTaken(AfterwitError):
    """Another process (a rollback) wrote the next version first: this one's parent is not the newest."""
