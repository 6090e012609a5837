"""Artificial annotators, rehearsals, power analysis and the demo campaign."""
