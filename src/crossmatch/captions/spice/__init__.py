"""SPICE: F-score over the tuples of scene graphs."""
