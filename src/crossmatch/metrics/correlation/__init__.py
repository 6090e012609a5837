"""Correlations of model scores with human ratings, and of metrics with each other."""
