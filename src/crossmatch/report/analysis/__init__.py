"""Analyses of several results: metric correlation, score distributions, direction gap, statistics."""
