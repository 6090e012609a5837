"""Tables, plots, comparisons and HTML reports of results."""
