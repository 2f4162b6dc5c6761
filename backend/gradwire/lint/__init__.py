"""Says what DeepSpeed, Accelerate and the Trainer will really do with the files that configure them."""

from __future__ import annotations

from gradwire.lint.engine import Checked, lint_files
from gradwire.lint.finding import Edit, Finding, Severity
from gradwire.targets.job import LaunchFacts, Versions

__all__ = ["Checked", "Edit", "Finding", "LaunchFacts", "Severity", "Versions", "lint_files"]
