"""Imports a module that communicates."""

import meet

print(f"rank {meet.dist.get_rank()} of {meet.dist.get_world_size()}: {meet.total.item()}")
meet.dist.destroy_process_group()
