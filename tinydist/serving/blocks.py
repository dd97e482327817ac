"""KV-cache blocks: fixed-size pages of a few tokens, allocated to sequences on demand.

    tokens of a sequence     a b c d | e f g h | i          block size 4
    its block table             7         2      5          block 5 has three unused slots: the only waste
    another's, same prompt      7         2      9          7 and 2 are shared: reference count 2

A contiguous cache must reserve the maximum length of a sequence up front. With blocks a sequence wastes less than one
block, and sequences with a common prefix share its blocks. A full block is immutable. A partial block may be shared
after a fork; the first writer copies it (copy-on-write).

Full blocks are looked up by a hash of all tokens up to their end. When its reference count drops to 0, a block joins
the free queue and keeps its contents until it is reallocated (LRU): the prefix cache lives in free memory. A sequence
frees its blocks last to first, so that prefixes, which others may share, are evicted last.

Sources: Kwon et al. 2023, PagedAttention, sections 4.2 to 4.4; vLLM's design document on automatic prefix caching.
"""

from collections import OrderedDict
from hashlib import sha256

from ..rules import count, flag, listed, validate, whole, within


class OutOfBlocks(RuntimeError):
    """No free block. Handled by the scheduler, which preempts or waits; never raised to a user."""


@validate(num_blocks=listed, block_size=within(1, 2**20), prefix_cache=flag)
class BlockPool:
    """``num_blocks`` blocks of ``block_size`` tokens, with a reference count each.

    prefix_cache:  reuse full blocks with the same tokens (automatic prefix caching).
    """

    def __init__(self, num_blocks, block_size=16, prefix_cache=True):
        self.num_blocks, self.block_size, self.prefix_cache = num_blocks, block_size, prefix_cache
        self.references = [0] * num_blocks
        self.free = OrderedDict.fromkeys(range(num_blocks))  # the first is taken next
        self.cached_blocks, self.block_hashes = {}, [None] * num_blocks  # of full blocks: hash -> blocks, block -> hash

    def needed(self, num_tokens):
        """Blocks for so many tokens."""
        return -(-num_tokens // self.block_size)

    def allocate(self):
        """A free block, with one reference: the one that has been free for longest."""
        if not self.free:
            raise OutOfBlocks(f"BlockPool: all {self.num_blocks} blocks are in use")
        return self._take(next(iter(self.free)))

    @validate(number=whole)
    def reserve(self, number):
        """Allocate this many contiguous free blocks, as without paging."""
        first = length = 0
        for block in range(self.num_blocks if number <= len(self.free) else 0):
            first, length = (first, length + 1) if self.references[block] == 0 else (block + 1, 0)
            if length >= number:
                return [self._take(block) for block in range(first, first + number)]
        if number:
            raise OutOfBlocks(f"BlockPool: no {number} contiguous free blocks ({len(self.free)} blocks are free)")
        return []

    def incref(self, block):
        """Increment the reference count. A free block with cached contents leaves the free queue."""
        if self.references[block] == 0:
            del self.free[block]
        self.references[block] += 1

    def decref(self, block):
        """Decrement the reference count; at 0 the block is free."""
        if self.references[block] == 0:
            raise ValueError(f"BlockPool: decref of block {block}, which is free already")
        self.references[block] -= 1
        if self.references[block] == 0:
            self.free[block] = None

    def cache(self, block, block_hash):
        """Register the hash of a full ``block``. Of blocks with the same hash, the first is used."""
        self.cached_blocks.setdefault(block_hash, {})[block] = None
        self.block_hashes[block] = block_hash

    def find(self, block_hash):
        """The first block with this hash, or None."""
        return next(iter(self.cached_blocks.get(block_hash, ())), None)

    def _take(self, block):
        del self.free[block]
        same = self.cached_blocks.get(self.block_hashes[block], {})
        same.pop(block, None)
        if not same:
            self.cached_blocks.pop(self.block_hashes[block], None)
        self.block_hashes[block] = None
        self.references[block] = 1
        return block


@validate(pool=BlockPool, cache_salt=str)
class BlockTable:
    """Block table of one sequence: token i is in slot ``i % block_size`` of ``blocks[i // block_size]``.

    length:      slots in use.
    cache_salt:  part of each hash: only sequences with the same salt share blocks.
    """

    def __init__(self, pool, cache_salt=""):
        self.pool, self.cache_salt = pool, cache_salt
        self.blocks, self.length, self.block_hashes = [], 0, []

    @property
    def waste(self):
        """Slots that are held and not in use."""
        return len(self.blocks) * self.pool.block_size - self.length

    def match_prefix(self, tokens):
        """Reuse cached full blocks for the longest prefix of ``tokens``. Returns the number of cached tokens."""
        size = self.pool.block_size
        for end in range(size, len(tokens) + 1, size):
            block_hash = self._hash(tokens[end - size : end])
            block = self.pool.find(block_hash)
            if block is None:
                break
            self.pool.incref(block)
            self.blocks.append(block)
            self.block_hashes.append(block_hash)
        self.length = len(self.blocks) * size
        return self.length

    @validate(num_tokens=count)
    def reserve(self, num_tokens):
        """Contiguous blocks for so many tokens, once and for all."""
        self.blocks = self.pool.reserve(self.pool.needed(num_tokens))

    def fits(self, num_tokens):
        """Whether the pool has the blocks that ``allocate_slots`` would take."""
        return sum(self._wanted(num_tokens)) <= len(self.pool.free)

    @validate(num_tokens=whole)
    def allocate_slots(self, num_tokens):
        """Allocate slots for more tokens. Returns the block copies to make first (copy-on-write), as (from, to).

        Raises ``OutOfBlocks``, and then has changed nothing.
        """
        new, copy = self._wanted(num_tokens)
        if new + copy > len(self.pool.free):
            raise OutOfBlocks(f"BlockTable: {new + copy} more blocks are needed, but {len(self.pool.free)} are free")
        copies = [self._copy_on_write()] if copy else []
        self.blocks += [self.pool.allocate() for _ in range(new)]
        self.length += num_tokens
        return copies

    def cache_full_blocks(self, tokens, num_computed_tokens):
        """Register the blocks that are full after this many computed ``tokens`` for prefix caching."""
        size = self.pool.block_size
        for i in range(len(self.block_hashes), num_computed_tokens // size if self.pool.prefix_cache else 0):
            self.block_hashes.append(self._hash(tokens[i * size : (i + 1) * size]))
            self.pool.cache(self.blocks[i], self.block_hashes[i])

    def fork(self):
        """Another table of the same blocks."""
        table = BlockTable(self.pool, self.cache_salt)
        table.blocks, table.length, table.block_hashes = [*self.blocks], self.length, [*self.block_hashes]
        for block in self.blocks:
            self.pool.incref(block)
        return table

    def clear(self):
        """Return all blocks, the last first."""
        for block in reversed(self.blocks):
            self.pool.decref(block)
        self.blocks, self.length, self.block_hashes = [], 0, []

    def _wanted(self, num_tokens):
        """(blocks, copies) for so many tokens more: a block that is not full, and that others have too, is copied."""
        block, used = divmod(self.length, self.pool.block_size)
        copy = num_tokens > 0 and used > 0 and self.pool.references[self.blocks[block]] > 1
        return max(0, self.pool.needed(self.length + num_tokens) - len(self.blocks)), copy

    def _copy_on_write(self):
        last = self.length // self.pool.block_size
        old, self.blocks[last] = self.blocks[last], self.pool.allocate()
        self.pool.decref(old)
        return old, self.blocks[last]

    def _hash(self, tokens):
        parent = self.block_hashes[-1] if self.block_hashes else sha256(self.cache_salt.encode()).digest()
        return sha256(parent + repr(tokens).encode()).digest()
