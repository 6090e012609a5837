"""Models of other libraries: open_clip, transformers, sentence-transformers, timm, endpoints, user code."""
