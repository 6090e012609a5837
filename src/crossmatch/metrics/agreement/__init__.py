"""Agreement between annotators, aggregation of their answers, and bias in where they click."""
