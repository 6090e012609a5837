"""Tables, plots and pages about caption scores."""
