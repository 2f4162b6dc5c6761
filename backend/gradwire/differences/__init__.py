"""Compares two recipes, two configurations, or one of each, by what they end up with."""
