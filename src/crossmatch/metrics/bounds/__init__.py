"""Bounds of ranking metrics, and of differences between models, when some pairs are unjudged."""
