"""Public names that are imported on first use, so that importing a package is fast and needs no optional library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from crossmatch.data.errors import explain_missing_library


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` of a package.

    Args:
        package: Full name of the package.
        modules: The module of each public name, relative to the package.
    """

    def get_name(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(f"{package}.{modules[name]}")
        except ModuleNotFoundError as error:
            raise explain_missing_library(error) from error
        return getattr(module, name)

    return get_name, lambda: sorted(modules)
