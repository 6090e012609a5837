"""Write docs/api.md from the docstrings of the public names.

`make docs` runs it; a test checks that the page is up to date.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PACKAGES = ("crossmatch", "crossmatch.build", "crossmatch.study", "crossmatch.train")
LONGEST_DEFAULT = 120  # characters; all fields of an options class
INTRODUCTION = """# Python API

Everything below is public: it is documented here, typed, and renamed only with a note in the changelog. All other modules may
change. In the examples the name itself is imported, and `folder` is a new, empty `Path`. Made from the docstrings by
`docs/make_api.py`.
"""


def api_page() -> str:
    """The page: a table of names per package, and then each name with its signature and docstring."""
    parts = [INTRODUCTION]
    for name in PACKAGES:
        package = import_module(name)
        objects = {public: getattr(package, public) for public in package.__all__}
        rows = [
            f"| [`{public}`](#{anchor(name, public, list(objects))}) | {first_line(value)} |" for public, value in objects.items()
        ]
        description = (package.__doc__ or "").partition(">>>")[0].strip()
        parts += [f"## {name}\n", f"{description}\n", "| name | what it is or does |\n| :-- | :-- |", *rows, ""]
        parts += [section(name, public, value) for public, value in objects.items()]
    return "\n".join(parts)


def anchor(package: str, name: str, names: list[str]) -> str:
    """The anchor that Markdown makes of a heading. Later names that differ only in case get a number.

    >>> anchor("crossmatch.build", "build_pool", ["build_pool"]), anchor("crossmatch", "metric", ["Metric", "metric"])
    ('crossmatchbuildbuild_pool', 'crossmatchmetric-1')
    """
    earlier = [other for other in names[: names.index(name)] if other.lower() == name.lower()]
    return re.sub(r"[^\w -]", "", f"{package}.{name}").lower() + (f"-{len(earlier)}" if earlier else "")


def first_line(documented: Any) -> str:
    """The first paragraph of a docstring in one line."""
    paragraph = (inspect.getdoc(documented) or "").split("\n\n")[0]
    return " ".join(paragraph.split()).replace("|", "\\|")


def section(package: str, name: str, documented: Any) -> str:
    """A heading, the signature, and the docstring as it is in the code."""
    return f"### {package}.{name}\n\n```text\n{signature(name, documented)}\n\n{inspect.getdoc(documented)}\n```\n"


def signature(name: str, documented: Any) -> str:
    """The call of a function, or the fields of a class, one per line where it is long."""
    if inspect.isclass(documented) and issubclass(documented, Exception):
        return f"class {name}({documented.__bases__[0].__name__})"
    parameters = [format_parameter(parameter) for parameter in inspect.signature(documented).parameters.values()]
    kinds = [parameter.kind for parameter in inspect.signature(documented).parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parameters.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    head = f"{'class ' if inspect.isclass(documented) else ''}{name}"
    short = f"{head}({', '.join(parameters)})"
    return short if len(short) <= 100 else f"{head}(\n" + "".join(f"    {text},\n" for text in parameters) + ")"


def format_parameter(parameter: inspect.Parameter) -> str:
    """A parameter with its type and default; `…` stands for a default that is a function, is long, or is made anew for each call."""
    default = "" if parameter.default is parameter.empty else repr(parameter.default)
    if default.startswith("<") or len(default) > LONGEST_DEFAULT:
        return str(parameter.replace(default=Ellipsis)).replace("'", "").replace("Ellipsis", "…")
    annotation = parameter.annotation
    return str(parameter).replace(repr(annotation), annotation, 1) if isinstance(annotation, str) else str(parameter)


if __name__ == "__main__":
    (HERE / "api.md").write_text(api_page(), encoding="utf-8")
