"""Images generated for negative captions."""
