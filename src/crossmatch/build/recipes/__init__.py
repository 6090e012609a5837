"""The constructions of the papers as sequences of build steps."""
