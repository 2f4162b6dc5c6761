"""Compare: measurements of one recipe -> speed-up, scaling efficiency, grade, table, charts and report."""
