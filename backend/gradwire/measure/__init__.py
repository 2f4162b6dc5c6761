"""Measure: arithmetic on clock readings and counts that the caller supplies; runs without torch."""
