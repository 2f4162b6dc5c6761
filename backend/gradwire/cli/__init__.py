"""The command `gradwire`: one module per verb, each imported when it is asked for."""
