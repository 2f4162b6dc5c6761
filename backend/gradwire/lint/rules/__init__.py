"""The linter's rules, one module per subject; `table` lists them all."""
