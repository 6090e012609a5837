"""Building benchmarks: look-alike pairs, hard negatives, pools for human judgement, merging, publishing.

Every step writes a folder with its rows (`rows.jsonl`) and a manifest (`manifest.json`: inputs, options, counts), which it also
returns. A step that was interrupted resumes when it is called again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossmatch._lazy import lazy_names

_MODULES = {
    "LookalikeOptions": "lookalikes",
    "find_lookalikes": "lookalikes",
    "sample_sts": "rated_pair_sampling",
    "sample_sis": "rated_pair_sampling",
    "sample_sits": "rated_pair_sampling",
    "write_rule_negatives": "negatives.by_rules",
    "write_llm_negatives": "negatives.by_language_model",
    "write_diorama_negatives": "negatives.by_diorama",
    "generate_images": "generation.negative_images",
    "refine_negatives": "refinement.refinement_step",
    "PoolOptions": "pooling",
    "build_pool": "pooling",
    "MergeOptions": "merging.merge",
    "write_merge": "merging.merge",
    "BoundsOptions": "model_order_bounds",
    "bound_model_order": "model_order_bounds",
    "write_pool_bias": "pool_bias_step",
    "CardTexts": "publishing.published_folder",
    "write_card": "publishing.published_folder",
    "RecipeRun": "recipes.engine",
    "run_stages": "recipes.engine",
}

__all__ = [
    "BoundsOptions",
    "CardTexts",
    "LookalikeOptions",
    "MergeOptions",
    "PoolOptions",
    "RecipeRun",
    "bound_model_order",
    "build_pool",
    "find_lookalikes",
    "generate_images",
    "refine_negatives",
    "run_stages",
    "sample_sis",
    "sample_sits",
    "sample_sts",
    "write_card",
    "write_diorama_negatives",
    "write_llm_negatives",
    "write_merge",
    "write_pool_bias",
    "write_rule_negatives",
]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)

if TYPE_CHECKING:
    from crossmatch.build.generation.negative_images import generate_images
    from crossmatch.build.lookalikes import LookalikeOptions, find_lookalikes
    from crossmatch.build.merging.merge import MergeOptions, write_merge
    from crossmatch.build.model_order_bounds import BoundsOptions, bound_model_order
    from crossmatch.build.negatives.by_diorama import write_diorama_negatives
    from crossmatch.build.negatives.by_language_model import write_llm_negatives
    from crossmatch.build.negatives.by_rules import write_rule_negatives
    from crossmatch.build.pool_bias_step import write_pool_bias
    from crossmatch.build.pooling import PoolOptions, build_pool
    from crossmatch.build.publishing.published_folder import CardTexts, write_card
    from crossmatch.build.rated_pair_sampling import sample_sis, sample_sits, sample_sts
    from crossmatch.build.recipes.engine import RecipeRun, run_stages
    from crossmatch.build.refinement.refinement_step import refine_negatives
