"""The ways in which findings are written: text for people, and the forms that other programs read."""
