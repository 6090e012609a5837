"""The cache on disk: one store of named arrays, and on top of it score matrices, trial scores and embeddings."""

from crossmatch.models.cache.store import Cache, CacheEntry, default_cache_folder

__all__ = ["Cache", "CacheEntry", "default_cache_folder"]
