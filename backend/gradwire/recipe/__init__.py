"""Reads, resolves and validates a recipe."""

from gradwire.recipe.load import LoadedRecipe, check_device, load_recipe
from gradwire.recipe.merge import Origin
from gradwire.recipe.overrides import Override, parse_set

__all__ = ["LoadedRecipe", "Origin", "Override", "check_device", "load_recipe", "parse_set"]
