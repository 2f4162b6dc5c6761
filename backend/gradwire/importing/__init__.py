"""Turns the configuration that people already have into a recipe that lowers back to the same."""
