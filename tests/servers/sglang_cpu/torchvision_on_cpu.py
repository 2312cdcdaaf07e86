"""Lets a torchvision that was built for GPUs be imported over a torch without CUDA.

Its compiled operators do not load there, and it fails while it gives them their shapes. Tests need none of
them: they are declared, without a body, just before torchvision is first imported.
"""

import importlib.abc
import sys

SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class DeclareOperators(importlib.abc.MetaPathFinder):
    """Finds nothing itself; it only sees the import begin, once."""

    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            if not torch.cuda.is_available():
                for operator in ("nms", "qnms"):
                    torch.library.define(f"torchvision::{operator}", SCHEMA)
        return


sys.meta_path.insert(0, DeclareOperators())
