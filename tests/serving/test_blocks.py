"""Blocks: whatever is done to them, none is lost, none has two owners who write, and all is found where it was put."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tinydist.serving import BlockPool, BlockTable, OutOfBlocks

BLOCKS, SIZE = 7, 3
some = st.lists(st.integers(0, 1), min_size=1, max_size=10)


class Serving(RuleBasedStateMachine):
    """Tables that match, grow, fork and leave; ``memory`` is the cache: in each slot all tokens up to that one."""

    operations = 0

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(BLOCKS, SIZE)
        self.memory = {}  # (block, offset) -> tokens
        self.tables = []  # [table, tokens that are computed]

    def one(self, data):
        return data.draw(st.sampled_from(self.tables))

    @rule(tokens=some)
    def come(self, tokens):
        """A new sequence: what the pool has, and the rest; or nothing, where memory is out."""
        table = BlockTable(self.pool)
        free = len(self.pool.free)
        found = table.match_prefix(tokens[:-1])
        try:
            self.write(table, tokens[:found], tokens[found:])
            self.tables.append([table, tokens])
        except OutOfBlocks:
            table.clear()
            assert len(self.pool.free) == free

    @precondition(lambda self: self.tables)
    @rule(tokens=some, data=st.data())
    def go_on(self, tokens, data):
        one = self.one(data)
        before = [*one[0].blocks], one[0].length, [*self.pool.references]
        try:
            self.write(*one, tokens)
            one[1] = one[1] + tokens
        except OutOfBlocks:
            assert before == (one[0].blocks, one[0].length, self.pool.references)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def fork(self, data):
        table, tokens = self.one(data)
        self.tables.append([table.fork(), tokens])

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def leave(self, data):
        one = self.one(data)
        self.tables.remove(one)
        one[0].clear()

    @rule(tokens=st.integers(1, 9))
    def reserve(self, tokens):
        table = BlockTable(self.pool)
        try:
            table.reserve(tokens)
        except OutOfBlocks:
            assert not table.blocks
            return
        assert table.blocks == [*range(table.blocks[0], table.blocks[0] + self.pool.needed(tokens))]
        self.write(table, [], [1] * tokens)
        self.tables.append([table, [1] * tokens])

    def write(self, table, before, tokens):
        for source, target in table.allocate_slots(len(tokens)):
            for offset in range(SIZE):
                self.memory[target, offset] = self.memory.get((source, offset))
        for i, _ in enumerate(tokens, len(before)):
            block = table.blocks[i // SIZE]
            assert self.pool.references[block] == 1, "a shared block is written"
            assert self.pool.block_hashes[block] is None, "a block that others may find is written"
            self.memory[block, i % SIZE] = (before + tokens)[: i + 1]
        table.cache_full_blocks(before + tokens, table.length)

    @invariant()
    def all_is_where_it_was_put(self):
        Serving.operations += 1
        for table, tokens in self.tables:
            assert table.length == len(tokens) <= len(table.blocks) * SIZE
            for i in range(len(tokens)):
                assert self.memory[table.blocks[i // SIZE], i % SIZE] == tokens[: i + 1]

    @invariant()
    def references_are_those_of_the_tables(self):
        held = Counter(block for table, _ in self.tables for block in table.blocks)
        assert self.pool.references == [held[block] for block in range(BLOCKS)]
        assert set(self.pool.free) == {block for block in range(BLOCKS) if not held[block]}

    @invariant()
    def what_is_found_is_what_it_is_called(self):
        for block, name in enumerate(self.pool.block_hashes):
            assert name is None or block in self.pool.cached_blocks[name]
        for name, block in ((name, block) for name, blocks in self.pool.cached_blocks.items() for block in blocks):
            assert self.pool.block_hashes[block] == name
            table = BlockTable(BlockPool(BLOCKS, SIZE))
            table.blocks = [block] * BLOCKS
            table.cache_full_blocks(tokens := self.memory[block, SIZE - 1], len(tokens))
            assert table.block_hashes[-1] == name

    @invariant()
    def what_somebody_has_is_found(self):
        assert all(self.pool.find(name) is not None for table, _ in self.tables for name in table.block_hashes)


def test_no_block_is_lost_or_written_by_two():
    run_state_machine_as_test(Serving, settings=settings(max_examples=15, stateful_step_count=20))


@pytest.mark.exhaustive
def test_over_ten_thousand_operations():
    Serving.operations = 0
    run_state_machine_as_test(Serving, settings=settings(max_examples=300, stateful_step_count=100))
    assert Serving.operations > 10_000


def table_of(pool, tokens, cache_salt=""):
    """A sequence whose tokens are all computed."""
    table = BlockTable(pool, cache_salt)
    found = table.match_prefix(tokens[:-1])
    table.allocate_slots(len(tokens) - found)
    table.cache_full_blocks(tokens, len(tokens))
    return table, found


def test_the_queue_of_free_blocks():
    """The example of vLLM's design document on its prefix cache: 10 blocks of 4."""
    pool, first, second = BlockPool(10, 4), [*range(15)], [*range(10), 20, 21, 22, 23]
    a, found = table_of(pool, first)
    assert (a.blocks, found, len(pool.cached_blocks)) == ([0, 1, 2, 3], 0, 3)
    a.allocate_slots(2)
    a.cache_full_blocks(first + [15, 16], 17)
    assert (a.blocks, len(pool.cached_blocks)) == ([0, 1, 2, 3, 4], 4)
    b, found = table_of(pool, second)
    assert (b.blocks, found) == ([0, 1, 5, 6], 8)
    a.clear()
    assert [*pool.free] == [7, 8, 9, 4, 3, 2]
    b.clear()
    assert [*pool.free] == [7, 8, 9, 4, 3, 2, 6, 5, 1, 0]
    c, found = table_of(pool, [*range(12), *range(30, 47)])
    assert (c.blocks, found) == ([0, 1, 2, 7, 8, 9, 4, 3], 12)
    assert [*pool.free] == [6, 5]


def test_a_whole_prompt_that_is_found_is_computed_from_its_last_block_on():
    """32 tokens in blocks of 16: what follows the last token must be computed, so 16 are found."""
    pool, prompt = BlockPool(8, 16), [*range(32)]
    table_of(pool, prompt)
    assert table_of(pool, prompt)[1] == 16


def test_what_others_computed_is_found_for_the_same_salt_alone():
    pool, prompt = BlockPool(16, 4), [*range(12)]
    table_of(pool, prompt, "mine")
    assert [table_of(pool, prompt, salt)[1] for salt in ("", "mine", "yours")] == [0, 8, 0]


def test_what_two_have_computed_is_found_when_the_first_is_gone():
    pool, prompt = BlockPool(4, 4), [*range(4)]
    first, second = BlockTable(pool), BlockTable(pool)
    for table in (first, second):
        table.allocate_slots(4)
        table.cache_full_blocks(prompt, 4)
    first.clear()
    assert [pool.allocate() for _ in range(3)] == [2, 3, 0]
    found = BlockTable(pool)
    assert found.match_prefix(prompt) == 4 and found.blocks == second.blocks == [1]


def test_without_a_prefix_cache_nothing_is_found():
    pool = BlockPool(8, 4, prefix_cache=False)
    assert [table_of(pool, [*range(12)])[1] for _ in range(2)] == [0, 0]


def test_the_first_writer_copies_and_the_last_has_the_block_for_itself():
    pool = BlockPool(4, 4)
    table, _ = table_of(pool, [*range(6)])
    other, third = table.fork(), table.fork()
    assert pool.references == [3, 3, 0, 0]
    assert other.allocate_slots(1) == [(1, 2)] and table.allocate_slots(1) == [(1, 3)] and third.allocate_slots(1) == []
    assert pool.references == [3, 1, 1, 1]
    assert (table.blocks, other.blocks, third.blocks) == ([0, 3], [0, 2], [0, 1])


def test_what_does_not_fit_changes_nothing():
    """A copy and a new block are two, and one is free."""
    pool = BlockPool(3, 4)
    table, _ = table_of(pool, [*range(6)])
    table.fork()
    with pytest.raises(OutOfBlocks, match=r"^BlockTable: 2 more blocks are needed, but 1 are free$"):
        table.allocate_slots(3)
    assert (table.blocks, table.length, pool.references, [*pool.free]) == ([0, 1], 6, [2, 2, 0], [2])


def test_waste_is_less_than_a_block():
    pool = BlockPool(100, 16)
    for tokens in range(1, 100):
        table, _ = table_of(pool, [tokens] * tokens)
        assert table.waste == -tokens % 16
        table.clear()


def test_neighbors_are_found_wherever_they_are():
    pool = BlockPool(6, 4)
    blocks = pool.reserve(6)
    for block in (1, 3, 4):
        pool.decref(blocks[block])
    assert pool.reserve(0) == [] and pool.reserve(2) == [3, 4]
    with pytest.raises(OutOfBlocks, match=r"^BlockPool: no 2 contiguous free blocks \(1 blocks are free\)$"):
        pool.reserve(2)


def test_errors():
    pool = BlockPool(1, 4)
    table = BlockTable(pool)
    with pytest.raises(OutOfBlocks, match=r"^BlockTable: 2 more blocks are needed, but 1 are free$"):
        table.allocate_slots(5)
    pool.allocate()
    with pytest.raises(OutOfBlocks, match=r"^BlockPool: all 1 blocks are in use$"):
        pool.allocate()
    pool.decref(0)
    with pytest.raises(ValueError, match=r"^BlockPool: decref of block 0, which is free already$"):
        pool.decref(0)
