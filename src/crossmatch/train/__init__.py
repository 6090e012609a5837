"""Training: one loop, objectives and recipes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossmatch._lazy import lazy_names

_MODULES = {
    "TrainingRecipe": "recipe",
    "load_recipe": "recipe",
    "recipe_names": "recipe",
    "DataOptions": "data.sources",
    "train_recipe": "run_recipe",
}

__all__ = [
    "DataOptions",
    "TrainingRecipe",
    "load_recipe",
    "recipe_names",
    "train_recipe",
]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)

if TYPE_CHECKING:
    from crossmatch.train.data.sources import DataOptions
    from crossmatch.train.recipe import TrainingRecipe, load_recipe, recipe_names
    from crossmatch.train.run_recipe import train_recipe
