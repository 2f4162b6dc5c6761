"""Programs that measure Gradwire itself; they are not part of the package."""
