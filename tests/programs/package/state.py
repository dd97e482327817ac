"""Global variables, one set for each process."""

seen = []
rank = None
