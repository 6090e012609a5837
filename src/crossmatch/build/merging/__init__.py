"""Human answers, ratings and original links merged into one set of judgements."""
