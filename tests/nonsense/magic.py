"""Valid calls of ``tinydist.magic``."""

CALLS = {}
REASONS = {"RanksMagic": "reads a line of text: tests/magic has what it may say, and what not"}
