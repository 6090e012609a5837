"""METEOR 1.5 in Python: matching, alignment and scoring."""
