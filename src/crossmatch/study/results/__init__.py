"""From answers to results: counted answers, agreement, quality of annotators, combined decisions, exports."""
