"""Scores of captions against reference captions, equal to coco-caption's, without Java."""
