import errno

import pytest
import torch
from safetensors import SafetensorError

from afterwit.learner.failures import Trouble, trouble


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), Trouble.MEMORY),
        (MemoryError(), Trouble.MEMORY),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
            Trouble.MEMORY,
        ),
        (OSError(errno.ENOSPC, "No space left on device"), Trouble.DISK),
        (
            SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
            Trouble.DISK,
        ),
        (OSError(errno.EACCES, "Permission denied"), Trouble.OTHER),
        (ValueError("3 ids but 4 log-probs"), Trouble.OTHER),
    ],
)
def test_a_failure_is_of_the_kind_that_says_what_would_help(error: Exception, kind: Trouble) -> None:
    assert trouble(error) is kind


def test_a_cause_shows_through_what_was_raised_from_it() -> None:
    wrapped = RuntimeError("the worker failed")
    wrapped.__cause__ = MemoryError()
    assert trouble(wrapped) is Trouble.MEMORY


def test_a_real_allocation_that_is_too_large_is_a_lack_of_memory() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**52)
    assert trouble(caught.value) is Trouble.MEMORY
