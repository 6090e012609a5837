"""Models by name, adapters to other libraries, baselines, the zoo of trainable systems, and the cache."""

from crossmatch.models.registry import (
    FAMILIES,
    FINE_TUNED_FILE,
    FOLDER_PLACEHOLDER,
    Family,
    families,
    fine_tuned_name,
    make_model,
)

__all__ = ["FAMILIES", "FINE_TUNED_FILE", "FOLDER_PLACEHOLDER", "Family", "families", "fine_tuned_name", "make_model"]
