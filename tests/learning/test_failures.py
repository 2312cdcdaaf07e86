import errno

import pytest
import torch
from safetensors import SafetensorError

from afterwit.errors import EngineError, EngineUnavailable
from afterwit.learning.health import FailureKind, failure_kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), FailureKind.MEMORY),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            FailureKind.MEMORY,
        ),
        (MemoryError(), FailureKind.MEMORY),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
            FailureKind.MEMORY,
        ),
        (OSError(errno.ENOSPC, "No space left on device"), FailureKind.DISK),
        (
            SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
            FailureKind.DISK,
        ),
        (OSError(errno.EACCES, "Permission denied"), FailureKind.OTHER),
        (ValueError("3 ids but 4 log-probs"), FailureKind.OTHER),
        (EngineUnavailable("the server is away: CUDA out of memory"), FailureKind.TEACHER),
        (EngineError("the server refused it"), FailureKind.OTHER),
    ],
)
def test_a_failure_is_of_the_kind_that_says_what_would_help(error: Exception, kind: FailureKind) -> None:
    assert failure_kind(error) is kind


def test_a_cause_shows_through_what_was_raised_from_it() -> None:
    wrapped = RuntimeError("the worker failed")
    wrapped.__cause__ = MemoryError()
    assert failure_kind(wrapped) is FailureKind.MEMORY


def test_a_real_allocation_that_is_too_large_is_a_lack_of_memory() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**52)
    assert failure_kind(caught.value) is FailureKind.MEMORY
