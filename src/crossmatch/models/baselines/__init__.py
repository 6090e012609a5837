"""Baselines and reference scorers: random, oracle, blind, n-gram, ConSE, small trained models."""
