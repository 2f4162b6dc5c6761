"""Watches a training command that knows nothing of Gradwire, from inside its processes: `gradwire measure`."""
