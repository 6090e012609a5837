"""How large a network of the zoo may be: limits that the declarations of all families share (see `core.declared`)."""

from __future__ import annotations

from collections.abc import Mapping

WIDTH: Mapping[str, float] = {"least": 1, "most": 1 << 16}  # numbers of a vector; published ones have up to 3,072
LAYERS: Mapping[str, float] = {"least": 0, "most": 64}
FEW: Mapping[str, float] = {"least": 1, "most": 1024}  # samples, heads, vectors of an item, steps of reasoning
SHARE: Mapping[str, float] = {"least": 0, "most": 0.99}  # of what is left out in training, or leaks
