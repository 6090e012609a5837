"""Fixtures of models: open_clip and timm, which import torchvision from a folder of their own (see the Makefile); a hub cache."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

APART = Path(sys.prefix) / "with-torchvision"


@pytest.fixture(scope="session")
def torchvision_operators() -> None:
    """Make torchvision importable: its path, and the operators that it registers; none of them is called here."""
    torch = pytest.importorskip("torch")
    if APART.is_dir() and str(APART) not in sys.path:
        sys.path.append(str(APART))
    if find_spec("torchvision") is None or _importable():
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _LIBRARIES.append(library)


_LIBRARIES: list[object] = []  # operators exist as long as their library


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
        warnings.simplefilter("ignore")  # from imports of the libraries
        module = import_module(name)
    logging.root.setLevel(level)
    return module


@pytest.fixture
def one_thread() -> Iterator[None]:
    """One thread for torch: in small networks, threads only wait for each other."""
    from crossmatch.models.torch_runtime import torch_threads

    with torch_threads(1):
        yield


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Mapping[str, bytes]], None]:
    """An empty Hugging Face cache, and a function that adds a repository with files, as a download does."""
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))

    def add(repository: str, files: Mapping[str, bytes], revision: str = "0" * 40) -> None:
        folder = tmp_path / "hub" / f"models--{repository.replace('/', '--')}"
        (folder / "snapshots" / revision).mkdir(parents=True)
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text(revision)
        for name, content in files.items():
            (folder / "snapshots" / revision / name).write_bytes(content)

    return add
