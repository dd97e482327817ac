"""04_mixed_precision: compute in 16 bits, and lose nothing that matters.

own_work.py            what may not be used
scenarios.py           answers that do, in runs that differ in more than that
fp16_step.py           what a step of training does, and what it should do
mended_fp16_step.py    the same, with four bugs to find
movement.py            how far weights move in a step, and why not as far as they should; many_steps.py: in many
"""

from . import mended_fp16_step as mended_fp16_step  # isort: skip
