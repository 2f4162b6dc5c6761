"""The configuration files of other programs: their text with places, their keys, and what is made of each value."""
