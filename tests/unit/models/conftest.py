"""open_clip and timm, which import torchvision: they lie in a folder of their own (see the Makefile), out of the way."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

APART = Path(sys.prefix) / "with-torchvision"


@pytest.fixture(scope="session")
def torchvision_operators() -> None:
    """Make torchvision importable: its path, and the operators that it registers shapes for; none of them is called here."""
    torch = pytest.importorskip("torch")
    if APART.is_dir() and str(APART) not in sys.path:
        sys.path.append(str(APART))
    if find_spec("torchvision") is None or _importable():
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _KEPT.append(library)


_KEPT: list[object] = []  # what a library has declared is gone with it


def _importable() -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import torchvision  # noqa: F401
        except (ImportError, RuntimeError):
            return False
    return True


@pytest.fixture(scope="session")
def open_clip(torchvision_operators: None) -> object:
    return _quietly("open_clip")


@pytest.fixture(scope="session")
def timm(torchvision_operators: None) -> object:
    return _quietly("timm")


def _quietly(name: str) -> object:
    if find_spec(name) is None and not os.environ.get("CI"):
        pytest.skip(f"{name} is not installed; `make test` puts it into {APART}")
    level = logging.root.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries' own imports
        found = import_module(name)
    logging.root.setLevel(level)
    return found
