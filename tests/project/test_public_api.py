"""The public API: every name exists, is documented with its arguments and an example, and is on the API page."""

import importlib.util
import inspect
import pkgutil
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [import_module(name) for name in ("crossmatch", "crossmatch.build", "crossmatch.study", "crossmatch.train")]
NAMES = [pytest.param(package, name, id=f"{package.__name__}.{name}") for package in PACKAGES for name in package.__all__]


@pytest.mark.torch
@pytest.mark.parametrize(("package", "name"), NAMES)
def test_public_name_is_documented_with_arguments_and_an_example(package, name):
    documented = getattr(package, name)
    text = inspect.getdoc(documented)
    assert ">>> " in text
    if not (inspect.isclass(documented) and issubclass(documented, Exception)) and inspect.signature(documented).parameters:
        assert "Args:" in text or "Attributes:" in text


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_list_their_names_once_and_hide_none_behind_a_module(package):
    assert sorted(package._MODULES) == sorted(package.__all__)
    assert not {module.name for module in pkgutil.iter_modules(package.__path__)} & set(package.__all__)
    with pytest.raises(AttributeError, match="no attribute 'evalute'"):
        package.evalute  # noqa: B018


@pytest.mark.torch
def test_api_page_is_up_to_date():
    spec = importlib.util.spec_from_file_location("make_api", ROOT / "docs/make_api.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs/api.md").read_text() == module.api_page(), "run `make docs`"
