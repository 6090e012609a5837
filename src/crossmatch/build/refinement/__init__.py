"""Removal of hard negatives that a blind model can tell from captions."""
