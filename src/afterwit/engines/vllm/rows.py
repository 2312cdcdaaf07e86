"""Rows of given ids that vLLM scores in one call, where it has its second model runner (on GPUs)."""

from __future__ import annotations

import ast
import base64
import struct
from array import array
from collections.abc import Sequence
from typing import Any

MAGIC = b"\x93NUMPY"


def params_of(at: Sequence[Sequence[int]], first: int) -> dict[str, Any]:
    """Sampling parameters: row i is of the ids that may stand at place first + i."""
    return {"prompt_logprob_token_ids": [list(row) for row in at], "prompt_logprob_start": first - 1}


def values_of(answer: str, at: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
    """The log-probs in an answer: a table in NumPy's file format, in base 64. ValueError for any other."""
    data = base64.b64decode(answer)
    if not data.startswith(MAGIC):
        raise ValueError("the server's rows are no NumPy table")
    wide = data[len(MAGIC)] > 1
    begin = len(MAGIC) + 2
    (size,) = struct.unpack_from("<I" if wide else "<H", data, begin)
    begin += 4 if wide else 2
    head = ast.literal_eval(data[begin : begin + size].decode("latin-1"))
    if head["descr"] != "<f4" or head["fortran_order"] or head["shape"][0] != len(at):
        raise ValueError(f"the server's rows are {head}, but {len(at)} rows of float32 are wanted")
    values, width = array("f", data[begin + size :]), head["shape"][1]
    return [tuple(values[place * width : place * width + len(row)]) for place, row in enumerate(at)]
