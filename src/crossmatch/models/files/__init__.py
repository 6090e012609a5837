"""Models read from files: precomputed scores, checkpoints, model folders."""
