"""Wrong answers to the exercises of 14_serving: each with the property that rejects it, and what it is told."""

import torch
from lab.registered import collection, solved

from tinydist.serving import BlockPool, BlockTable, expected_waste, paged_attention

WRONG_ANSWERS, wrong = collection()


# share_blocks


@wrong("share_blocks", "own work", "tinydist.serving")
def by_the_librarys_pool(blocks, size, events):
    BlockTable(BlockPool(blocks, size)).allocate_slots(0)
    return solved("share_blocks")(blocks, size, events)


def used(references):
    return [block for block, count in enumerate(references) if count]


@wrong("share_blocks", "tables", "where \"{'b': [2, 3], 'c': [0]}\" is right")
def above_all_in_use(*given):
    free = "([each for each in range(1 + max(used(references), default=-1), blocks)] or [references.index(0)])[0]"
    return solved("share_blocks", "references.index(0)", free, used=used)(*given)


@wrong("share_blocks", "references", "references is")
def in_use_or_not(*given):
    tables, references, copies, refused = solved("share_blocks")(*given)
    return tables, [min(each, 1) for each in references], copies, refused


@wrong("share_blocks", "refused", "too little memory (a+6 a+3 a+2)")
def takes_what_there_is(blocks, size, events):
    """Token by token, until there is no block."""
    tokens = []
    for number, (what, name, *more) in enumerate(events):
        tokens += [(number, (what, name, 1))] * more[0] if what == "append" else [(number, (what, name, *more))]
    tables, references, copies, refused = solved("share_blocks")(blocks, size, [event for _, event in tokens])
    return tables, references, copies, sorted({tokens[at][0] for at in refused})


@wrong("share_blocks", "copies", "copies is '[(1, 4)]'")
def forks_are_as_long_as_their_blocks(*given):
    old = "lengths[new] = [*tables[name]], lengths[name]"
    return solved("share_blocks", old, "lengths[new] = [*tables[name]], len(tables[name]) * size")(*given)


# decode_by_table


@wrong("decode_by_table", "runs", "nothing (None)")
def decodes_nothing(q, k, v, keys, values, tables, lengths, window):
    pass


@wrong("decode_by_table", "own work", "tinydist.serving")
def by_the_librarys_kernel(q, k, v, keys, values, tables, lengths, window):
    paged_attention(q[:1, None, None], keys[:, None], values[:, None], tables[:1], lengths[:1])
    return solved("decode_by_table")(q, k, v, keys, values, tables, lengths, window)


@wrong("decode_by_table", "memory", "besides its arguments")
def gathers(q, k, v, keys, values, tables, lengths, window):
    size, out = keys.shape[1], []
    for query, key, value, table, n in zip(q, k, v, tables, lengths):
        keys[table[n // size], n % size], values[table[n // size], n % size] = key, value
        rows = [(table[i // size], i % size) for i in range(max(n + 1 - window, 0), n + 1)]
        past, mixed = (torch.stack([each[row] for row in rows]) for each in (keys, values))
        out.append((past @ query * len(query) ** -0.5).softmax(0) @ mixed)
    return torch.stack(out)


@wrong("decode_by_table", "values", "no tokens, and a score of -1e+12")
def without_a_maximum(*given):
    return solved("decode_by_table", "now = torch.maximum(most, scores.max())", "now = most = torch.zeros(())")(*given)


@wrong("decode_by_table", "cache", "4 of 32 numbers")
def writes_keys_alone(q, k, v, keys, values, *more):
    return solved("decode_by_table")(q, k, v, keys, values.clone(), *more)


# next_pass


@wrong("next_pass", "runs", "None")
def decides_nothing(blocks, free, size, running, waiting):
    pass


@wrong("next_pass", "own work", "tinydist.serving")
def asks_the_library(*given):
    expected_waste(3.0)
    return solved("next_pass")(*given)


@wrong("next_pass", "passes", "one request, 4 blocks of 4")
def nobody_begins(blocks, free, size, running, waiting):
    return [each.name for each in running], [], []


@wrong("next_pass", "passes", "two that fit, 8 blocks of 4")
def one_begins(*given):
    go_on, begin, refused = solved("next_pass")(*given)
    return go_on, begin[:1], refused


@wrong("next_pass", "passes", "one that can never fit")
def nobody_begins_where_one_is_refused(*given):
    go_on, begin, refused = solved("next_pass")(*given)
    return go_on, [] if refused else begin, refused


# mended_blocks


@wrong("mended_blocks", "own work", "tinydist.serving")
def with_the_librarys_blocks(memory, calls):
    BlockPool(3, 4).allocate()
    return solved("mended_blocks")(memory, calls)


@wrong("mended_blocks", "values", "a fork of a copy (a+5 b=a b+1 c=b")
def copies_have_no_owner(memory, calls):
    return solved("mended_blocks", "references[copy] = 1", "references[copy] = 0")(memory, calls)


@wrong("mended_blocks", "memory", "of a when it is asked for is '1 of 1 are not in memory'")
def tokens_in_lists(memory, calls):
    tokens, found = {}, []
    for what, name, *more in calls:
        if what == "read":
            found.append(torch.stack(tokens[name]) if tokens[name] else memory.new_empty(0))
        else:
            new = more[0] if what == "fork" else name
            tokens[new] = tokens.get(name, []) + (list(more[0]) if what == "write" else [])
    return found


@wrong("mended_blocks", "memory", "when it is asked for is")
def tokens_in_lists_until_the_end(memory, calls):
    """In memory at last, and never read there."""
    tokens, found, size = {}, [], memory.shape[1]
    for what, name, *more in calls:
        if what == "read":
            found.append(torch.stack(tokens[name]) if tokens[name] else memory.new_empty(0))
        elif what == "end":
            del tokens[name]
        else:
            new = more[0] if what == "fork" else name
            tokens[new] = tokens.get(name, []) + (list(more[0]) if what == "write" else [])
    parts = [torch.stack(each[i : i + size]) for each in tokens.values() for i in range(0, len(each), size)]
    parts = [part for i, part in enumerate(parts) if not any(torch.equal(part, other) for other in parts[:i])]
    for block, part in zip(memory, parts):
        block[: len(part)] = part
    return found


@wrong("mended_blocks", "runs", "Memory runs out")
def the_old_block_keeps_its_owner(*given):
    return solved("mended_blocks", "                    references[table[-1]] -= 1\n", "")(*given)
