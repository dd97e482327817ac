"""Blocks: the cache's memory in pages of a few tokens, handed out when a sequence needs them, and not before.

    tokens of a sequence     a b c d | e f g h | i          block size 4
    its block table             7         2      5          block 5 has three slots to spare: all that is wasted
    another's, same prompt      7         2      9          7 and 2 are shared: two references each

Contiguous, a sequence would be given all that it may come to need, before it has a token. In blocks it wastes less than
one, and sequences that begin alike have their first blocks in common. A full block never changes. One that is not full
may be shared after a fork; whoever writes to it first takes a copy (copy on write).

Full blocks are found again by a hash of all tokens up to their end. When the last reference goes, a block joins the
queue of free ones, and keeps what is in it until the queue has moved up: the prefix cache is the free memory. A
sequence returns its blocks last to first, so that the beginnings, which others may share, stay longest.

Sources: Kwon et al. 2023, PagedAttention, sections 4.2 to 4.4; vLLM's design document on automatic prefix caching.
"""

from collections import OrderedDict
from hashlib import sha256

from ..rules import count, flag, listed, takes, whole, within


class OutOfBlocks(RuntimeError):
    """No block is free: the scheduler's to handle, who preempts or waits; a user never sees it."""


@takes(blocks=listed, block_size=within(1, 2**20), prefix_cache=flag)
class BlockPool:
    """``blocks`` blocks of ``block_size`` tokens, with a count of references each.

    prefix_cache:  full blocks are found again by what is in them.
    """

    def __init__(self, blocks, block_size=16, prefix_cache=True):
        self.blocks, self.block_size, self.prefix_cache = blocks, block_size, prefix_cache
        self.references = [0] * blocks
        self.free = OrderedDict.fromkeys(range(blocks))  # the first is taken next
        self.named, self.names = {}, [None] * blocks  # what is in a full block: name -> blocks, block -> name

    def needed(self, tokens):
        """Blocks for so many tokens."""
        return -(-tokens // self.block_size)

    def allocate(self):
        """A free block, with one reference: the one that has been free for longest."""
        if not self.free:
            raise OutOfBlocks(f"BlockPool: all {self.blocks} blocks are in use")
        return self._take(next(iter(self.free)))

    @takes(number=whole)
    def reserve(self, number):
        """So many free blocks that are neighbors, with one reference each: how memory is kept without paging."""
        first = length = 0
        for block in range(self.blocks):
            first, length = (first, length + 1) if self.references[block] == 0 else (block + 1, 0)
            if length >= number:
                return [self._take(block) for block in range(first, first + number)]
        if number:
            raise OutOfBlocks(f"BlockPool: no {number} contiguous free blocks ({len(self.free)} blocks are free)")
        return []

    def share(self, block):
        """One reference more; a block that was free and still has what was in it is in use again."""
        if self.references[block] == 0:
            del self.free[block]
        self.references[block] += 1

    def release(self, block):
        """One reference less; without any the block is free."""
        if self.references[block] == 0:
            raise ValueError(f"BlockPool: block {block} is released, but is free already")
        self.references[block] -= 1
        if self.references[block] == 0:
            self.free[block] = None

    def name(self, block, name):
        """``block`` is full. Of blocks that are full of the same, the first is found, as long as it is there."""
        self.named.setdefault(name, {})[block] = None
        self.names[block] = name

    def find(self, name):
        """The first block of this name, or None."""
        return next(iter(self.named.get(name, ())), None)

    def _take(self, block):
        del self.free[block]
        same = self.named.get(self.names[block], {})
        same.pop(block, None)
        if not same:
            self.named.pop(self.names[block], None)
        self.names[block] = None
        self.references[block] = 1
        return block


@takes(pool=BlockPool, salt=str)
class BlockTable:
    """Where the tokens of one sequence lie: token i in slot ``i % block_size`` of ``blocks[i // block_size]``.

    length:  slots in use.
    salt:    goes into the names: blocks are shared among sequences of the same salt alone.
    """

    def __init__(self, pool, salt=""):
        self.pool, self.salt = pool, salt
        self.blocks, self.length, self.names = [], 0, []

    @property
    def waste(self):
        """Slots that are held and not in use."""
        return len(self.blocks) * self.pool.block_size - self.length

    def match(self, tokens):
        """Take what the pool has of the beginning of ``tokens``, in full blocks, and return how many tokens that is."""
        size = self.pool.block_size
        for end in range(size, len(tokens) + 1, size):
            name = self._name(tokens[end - size : end])
            block = self.pool.find(name)
            if block is None:
                break
            self.pool.share(block)
            self.blocks.append(block)
            self.names.append(name)
        self.length = len(self.blocks) * size
        return self.length

    @takes(tokens=count)
    def reserve(self, tokens):
        """Neighboring blocks for so many tokens, once and for all."""
        self.blocks = self.pool.reserve(self.pool.needed(tokens))

    @takes(tokens=whole)
    def grow(self, tokens):
        """Room for so many tokens more, in blocks of its own. Returns the copies to make first, (from, to) each.

        Raises ``OutOfBlocks``, and then has changed nothing.
        """
        shared = tokens > 0 and self.length % self.pool.block_size > 0 and self._is_shared(self._last)
        new = max(0, self.pool.needed(self.length + tokens) - len(self.blocks))
        if new + shared > len(self.pool.free):
            raise OutOfBlocks(f"BlockTable: {new + shared} more blocks, but {len(self.pool.free)} are free")
        copies = [self._own(self._last)] if shared else []
        self.blocks += [self.pool.allocate() for _ in range(new)]
        self.length += tokens
        return copies

    def seal(self, tokens, computed):
        """Of ``tokens`` so many are computed: name the blocks that these fill."""
        size = self.pool.block_size
        for i in range(len(self.names), computed // size if self.pool.prefix_cache else 0):
            self.names.append(self._name(tokens[i * size : (i + 1) * size]))
            self.pool.name(self.blocks[i], self.names[i])

    def fork(self):
        """Another table of the same blocks."""
        table = BlockTable(self.pool, self.salt)
        table.blocks, table.length, table.names = [*self.blocks], self.length, [*self.names]
        for block in self.blocks:
            self.pool.share(block)
        return table

    def clear(self):
        """Return all blocks, the last first."""
        for block in reversed(self.blocks):
            self.pool.release(block)
        self.blocks, self.length, self.names = [], 0, []

    @property
    def _last(self):
        """The index of the block that is not full."""
        return self.length // self.pool.block_size

    def _is_shared(self, index):
        return self.pool.references[self.blocks[index]] > 1

    def _own(self, index):
        old, self.blocks[index] = self.blocks[index], self.pool.allocate()
        self.pool.release(old)
        return old, self.blocks[index]

    def _name(self, tokens):
        parent = self.names[-1] if self.names else sha256(self.salt.encode()).digest()
        return sha256(parent + repr(tokens).encode()).digest()
