"""Puts a run's figures where people already look: one module per tracker, each through the tracker's own library."""
