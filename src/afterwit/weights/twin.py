"""The same model with other values of some weights; it shares all the others."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


def twin(model: M, values: Mapping[str, nn.Parameter]) -> M:
    """A model of the same modules with the parameters `values`, by name; all others are those of `model`.

    Buffers are copied. Tied parameters stay tied. Raises KeyError for a name that the model does not have,
    ValueError for another shape.
    """
    named = dict(model.named_parameters())
    for name, value in values.items():
        if value.shape != named[name].shape:
            raise ValueError(f"{name} is {tuple(named[name].shape)}, but its value {tuple(value.shape)}")
    kept = {id(own): values.get(name, own) for name, own in named.items()}
    return copy.deepcopy(model, kept)  # deepcopy takes what is in its memo for the copy
