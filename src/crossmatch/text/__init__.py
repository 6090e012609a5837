"""Tokens, part-of-speech tags, WordNet, scene graphs and perturbations of captions. Offline and deterministic."""
