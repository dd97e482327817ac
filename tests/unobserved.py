"""Launches of which results alone are looked at: what the ranks do is not taken down, which costs more than they do."""

from functools import partial

import tinydist

launch = partial(tinydist.launch, observe=False)
