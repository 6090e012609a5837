"""The trainable systems of the papers. All modules need PyTorch; `crossmatch.models.zoo_families` lists them without it."""

from crossmatch.data.errors import MissingDependencyError

try:
    import torch  # noqa: F401
except ImportError as absent:
    raise MissingDependencyError("PyTorch", "models") from absent
