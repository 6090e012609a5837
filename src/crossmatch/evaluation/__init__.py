"""The one evaluation path: plan, score, count, summarise."""
