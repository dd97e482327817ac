"""``tinydist run``: scripts that are written for torchrun or spawn, on simulated ranks."""
