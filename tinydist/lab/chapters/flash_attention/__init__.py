"""10_flash_attention: exact attention, tile by tile, whose scores are never all there.

own_work.py          what may not be called
compare.py           a wrong tensor, and the mistake that makes it
tile_costs.py        what was held, and the products of which tiles were seen
states.py            attention over some keys; merged_states.py: over those of two
rows.py              a row of tiles as it should be, and with mistakes
row_tiles.py         the rows that are tried
flash_row.py         forward, for one tile of queries
columns.py           a column of tiles, the same
column_tiles.py      the columns that are tried
flash_column.py      backward, for one tile of keys
lengths.py           the whole of it, the same
mended_flash.py      a forward pass with four bugs
"""

from . import merged_states as merged_states  # isort: skip
from . import flash_row as flash_row  # isort: skip
from . import flash_column as flash_column  # isort: skip
from . import mended_flash as mended_flash  # isort: skip
