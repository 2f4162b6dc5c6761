"""Starts processes, the only place that does: look at the machine, check that it fits, run, say what went wrong."""
