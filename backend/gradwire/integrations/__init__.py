"""Gradwire's meter inside other people's training loops."""
