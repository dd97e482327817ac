"""Planning a run: which parallel plan fits, how long a step takes, what the whole run costs. Arithmetic, no tensors.

model.py         a transformer's sizes, parameters and FLOPs
plan.py          how it is dealt out, and which plans make no sense
operators.py     what one rank computes and sends
efficiency.py    what programs get of devices and wires: every constant, with its source
machine.py       seconds of an operator: as programs get them, or as on the simulated clock
"""
