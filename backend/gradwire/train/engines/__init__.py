"""Turns a plan into something that takes one optimizer step; one module per backend, imported when asked for."""
