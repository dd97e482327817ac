"""Wrong answers to the exercises of 14_serving: each with the property that rejects it, and what it is told."""

import math
from operator import le, lt

import torch
from lab.registered import collection

from tinydist.serving import BlockPool, BlockTable, expected_waste, paged_attention

WRONG_ANSWERS, wrong = collection()


# share_blocks


class Pool:
    """A right one, on sets of owners. ``copies(owners, length, size, tokens)``: is the last block copied?"""

    def __init__(self, blocks, size, copies=None, spare=0, sort=min, eager=False, leave=True):
        self.owners, self.size = [set() for _ in range(blocks)], size
        self.tables, self.lengths, self.copied, self.refused = {}, {}, [], []
        self.copies, self.spare, self.sort, self.eager, self.leave = copies or shared, spare, sort, eager, leave

    def run(self, events):
        for number, (what, name, *more) in enumerate(events):
            if getattr(self, what)(name, *more) == "refused":
                self.refused.append(number)
        return self.tables, [len(each) for each in self.owners], self.copied, self.refused

    def take(self, name):
        block = self.sort(i for i, owners in enumerate(self.owners) if not owners)
        self.owners[block].add(name)
        return block

    def fork(self, name, new):
        self.tables[new], self.lengths[new] = list(self.tables[name]), self.lengths[name]
        for block in self.tables[new]:
            self.owners[block].add(new)
        if self.eager and self.lengths[new] % self.size:
            self.copy(new)

    def drop(self, name, tokens):
        self.lengths[name] -= tokens
        while len(self.tables[name]) * self.size >= self.lengths[name] + self.size:
            self.owners[self.tables[name].pop()].discard(name)

    def end(self, name):
        self.drop(name, self.lengths[name])
        del self.tables[name], self.lengths[name]

    def copy(self, name):
        old = self.tables[name].pop()
        self.tables[name].append(self.take(name))
        if self.leave:
            self.owners[old].discard(name)
        self.copied.append((old, self.tables[name][-1]))

    def append(self, name, tokens):
        table, length = self.tables.get(name, []), self.lengths.get(name, 0)
        copy = bool(table) and self.copies(self.owners[table[-1]], length, self.size, tokens)
        new = math.ceil((length + tokens) / self.size) - len(table)
        if copy + new > sum(not each for each in self.owners) + self.spare:
            return "refused"
        self.tables[name], self.lengths[name] = table, length + tokens
        if copy:
            self.copy(name)
        for _ in range(new):
            table.append(self.take(name))
        return None


def shared(owners, length, size, tokens):
    return len(owners) > 1 and length % size != 0 and tokens > 0


@wrong("share_blocks", "runs", "it returned nothing (None), where a dict and three lists are right")
def shares_nothing(blocks, size, events):
    pass


@wrong("share_blocks", "own work", "you call tinydist.serving, where this is solved")
def by_the_librarys_pool(blocks, size, events):
    BlockTable(BlockPool(blocks, size)).grow(0)
    return Pool(blocks, size).run(events)


@wrong("share_blocks", "copies", "Nothing is copied: whoever writes to a block that another has, too")
def never_copies(blocks, size, events):
    return Pool(blocks, size, copies=lambda *_: False).run(events)


@wrong("share_blocks", "copies", "A full block is copied. Nobody writes to it any more")
def copies_full_blocks(blocks, size, events):
    return Pool(blocks, size, copies=lambda owners, length, size, tokens: len(owners) > 1 and tokens > 0).run(events)


@wrong("share_blocks", "copies", "Without a token nothing is written, and nothing needs a copy.")
def copies_for_no_token(blocks, size, events):
    return Pool(blocks, size, copies=lambda owners, length, size, _: shared(owners, length, size, 1)).run(events)


@wrong("share_blocks", "copies", "A block is copied that nobody else has")
def copies_its_own(blocks, size, events):
    return Pool(blocks, size, copies=lambda _, length, size, tokens: shared("ab", length, size, tokens)).run(events)


@wrong("share_blocks", "copies", "With two owners a block is shared, and copied already.")
def copies_from_three_on(blocks, size, events):
    return Pool(blocks, size, copies=lambda owners, *more: len(owners) > 2 and shared(owners, *more)).run(events)


@wrong("share_blocks", "copies", "A fork copies nothing: it names the same blocks, until somebody writes.")
def copies_at_the_fork(blocks, size, events):
    return Pool(blocks, size, eager=True).run(events)


@wrong("share_blocks", "runs", "ValueError: min()")
def has_no_end_of_memory(blocks, size, events):
    return Pool(blocks, size, spare=100).run(events)


@wrong("share_blocks", "tables", "The free block with the largest number is taken.")
def the_last_first(blocks, size, events):
    return Pool(blocks, size, sort=max).run(events)


@wrong("share_blocks", "refused", "Refused is '[1]', where '[]' is right")
def keeps_one_free(blocks, size, events):
    return Pool(blocks, size, spare=-1).run(events)


@wrong("share_blocks", "copies", "Who copies leaves the old block: it has one owner less.")
def old_owners_stay(blocks, size, events):
    return Pool(blocks, size, leave=False).run(events)


@wrong("share_blocks", "references", "References is '[1, 1, 1")
def in_use_or_not(blocks, size, events):
    tables, references, copies, refused = Pool(blocks, size).run(events)
    return tables, [min(each, 1) for each in references], copies, refused


@wrong("share_blocks", "refused", "refused is '[1, 2]', where '[1]' is right")
def takes_what_there_is(blocks, size, events):
    """Token by token, until there is no block."""
    tokens = []
    for number, (what, name, *more) in enumerate(events):
        tokens += [(number, (what, name, 1))] * more[0] if what == "append" else [(number, (what, name, *more))]
    tables, references, copies, refused = Pool(blocks, size).run([event for _, event in tokens])
    return tables, references, copies, sorted({tokens[at][0] for at in refused})


class FullForks(Pool):
    def fork(self, name, new):
        super().fork(name, new)
        self.lengths[new] = len(self.tables[new]) * self.size


@wrong("share_blocks", "copies", "copies is '[(1, 4)]', where '[(1, 2), (1, 5)]' is right")
def forks_are_as_long_as_their_blocks(blocks, size, events):
    return FullForks(blocks, size).run(events)


@wrong("share_blocks", "runs", "as copies, the third of tables, references, copies, refused, it returned [1, 1, 0, 0]")
def in_another_order(blocks, size, events):
    tables, references, copies, refused = Pool(blocks, size).run(events)
    return tables, copies, references, refused


# decode_by_table


def decode(q, k, v, keys, values, tables, lengths, window, *, slot=0, block=None, scale=None, seen=None, write=True):
    """A right one, but for memory: a sequence's tokens are gathered. ``seen(n, window)``: first and behind the last."""
    size, out = keys.shape[1], []
    for query, key, value, table, n in zip(q, k, v, tables, lengths):
        at = n + slot
        mine = table[at // size] if block is None else block(table, at // size)
        if write:
            keys[mine, at % size], values[mine, at % size] = key, value
        first, end = seen(n, window) if seen else (max(n + 1 - window, 0), n + 1)
        rows = [(table[i // size], i % size) for i in range(first, end)]
        past, mixed = (torch.stack([each[row] for row in rows]) for each in (keys, values))
        weights = (past @ query * (len(query) ** -0.5 if scale is None else scale)).softmax(0)
        out.append(weights @ mixed)
    return torch.stack(out)


@wrong("decode_by_table", "runs", "nothing (None) came back, where a tensor [B, e], of shape [1, 4], is right")
def decodes_nothing(q, k, v, keys, values, tables, lengths, window):
    pass


@wrong("decode_by_table", "own work", "you call tinydist.serving, where this is solved")
def by_the_librarys_kernel(q, k, v, keys, values, tables, lengths, window):
    paged_attention(q[:1, None, None], keys[:, None], values[:, None], tables[:1], lengths[:1])
    return decode(q, k, v, keys, values, tables, lengths, window)


@wrong("decode_by_table", "memory", "Keys are copied: indexing by a list or a tensor of blocks, cat and stack do that")
def gathers(*given):
    return decode(*given)


@wrong("decode_by_table", "cache", "No slot has changed: write the new key and value.")
def writes_nothing(q, k, v, keys, values, *more):
    return decode(q, k, v, keys.clone(), values.clone(), *more)


@wrong("decode_by_table", "cache", "It is written into the table's last block. Blocks behind may be there to spare")
def into_the_last_block(*given):
    return decode(*given, block=lambda table, _: table[-1])


@wrong("decode_by_table", "cache", "That is a place in the table: the number stands there.")
def without_the_table(*given):
    return decode(*given, block=lambda _, place: place)


@wrong("decode_by_table", "values", "The new token does not see itself: it is one of those that it sees.")
def not_itself(*given):
    return decode(*given, seen=lambda n, window: (max(min(n - 1, n + 1 - window), 0), max(n, 1)))


@wrong("decode_by_table", "values", "The window is one token too wide")
def a_window_too_wide(*given):
    return decode(*given, seen=lambda n, window: (max(n - window, 0), n + 1))


@wrong("decode_by_table", "values", "The scores are not scaled: divide them by sqrt(d).")
def unscaled(*given):
    return decode(*given, scale=1.0)


@wrong("decode_by_table", "values", "The last block is read to its end, where no token has written")
def to_the_end_of_the_block(q, k, v, keys, values, tables, lengths, window):
    size = keys.shape[1]

    def seen(n, window):
        return max(n + 1 - window, 0), (n // size + 1) * size

    return decode(q, k, v, keys, values, tables, lengths, window, seen=seen)


@wrong("decode_by_table", "values", "The first block of the window is read from its beginning")
def from_the_beginning_of_the_block(q, k, v, keys, values, tables, lengths, window):
    size = keys.shape[1]

    def seen(n, window):
        return max(n + 1 - window, 0) // size * size, n + 1

    return decode(q, k, v, keys, values, tables, lengths, window, seen=seen)


def merged(q, k, v, keys, values, tables, lengths, window, *, shift=True, follow=True, mean=False):
    """A right one, from the last block to the first, without a copy."""
    (_, size, _), out = keys.shape, []
    for query, key, value, table, n in zip(q, k, v, tables, lengths):
        keys[table[n // size]][n % size], values[table[n // size]][n % size] = key, value
        first, parts = max(n + 1 - window, 0), []
        for place in reversed(range(first // size, n // size + 1)):
            begin, end = max(first, place * size), min(n + 1, place * size + size)
            here = slice(begin - place * size, end - place * size)
            scores = keys[table[place]][here] @ (query / math.sqrt(query.numel()))
            top = scores.max() if shift else torch.zeros(())
            weights = torch.exp(scores - top)
            parts.append((top, weights.sum(), weights @ values[table[place]][here]))
        most = max(top for top, _, _ in parts)
        factors = [torch.exp(top - most) if follow else torch.ones(()) for top, _, _ in parts]
        if mean:
            out.append(sum(mixed / total for _, total, mixed in parts) / len(parts))
            continue
        total = sum(factor * weight for factor, (_, weight, _) in zip(factors, parts))
        out.append(sum(factor * mixed for factor, (_, _, mixed) in zip(factors, parts)) / total)
    return torch.stack(out)


@wrong("decode_by_table", "values", "of a score of -1e+12 is 0, and so is their sum")
def without_a_maximum(*given):
    return merged(*given, shift=False)


@wrong("decode_by_table", "values", "Each block has weights that sum to 1, and all blocks count as much")
def a_mean_of_blocks(*given):
    return merged(*given, mean=True)


@wrong("decode_by_table", "values", "numbers of the result [B, e] are wrong")
def maxima_forgotten(*given):
    return merged(*given, follow=False)


@wrong("decode_by_table", "values", "some of its tokens are older than the window")
def without_a_window(*given):
    return merged(*given[:-1], 10**6)


@wrong("decode_by_table", "cache", "The key is written, and the value is not: it has a slot, too.")
def writes_keys_alone(q, k, v, keys, values, *more):
    return decode(q, k, v, keys, values.clone(), *more)


@wrong(
    "decode_by_table", "values", "Scores are lowered by the largest of the first block. A later one may have a larger"
)
def the_first_maximum_stays(q, k, v, keys, values, tables, lengths, window):
    size, out = keys.shape[1], []
    for query, key, value, table, n in zip(q, k, v, tables, lengths):
        keys[table[n // size], n % size], values[table[n // size], n % size] = key, value
        first, top, total, mixed = max(n + 1 - window, 0), None, 0, 0
        for place in range(first // size, n // size + 1):
            here = slice(max(first - place * size, 0), n + 1 - place * size)
            scores = keys[table[place]][here] @ query / math.sqrt(len(query))
            top = scores.max() if top is None else top
            weights = (scores - top).exp()
            total, mixed = total + weights.sum(), mixed + weights @ values[table[place]][here]
        out.append(mixed / total)
    return torch.stack(out)


# next_pass


def decide(
    blocks,
    free,
    size,
    running,
    waiting,
    *,
    victim=-1,
    late=False,
    skip=False,
    stop=False,
    total="longest",
    fits="tokens",
):
    """A right one, that plans with what is left. ``victim``: which of those that are left gives way."""
    refused = {each.name for each in waiting if math.ceil(getattr(each, total) / size) > blocks}
    left, done = [*running], 0
    while done < len(left):
        more = math.ceil(left[done].tokens / size) - left[done].held
        if more <= free:
            free, done = free - more, done + 1
        else:
            free += left.pop(max(victim, done - len(left))).held
    begin = []
    for each in waiting if left == running or late else ():
        need = math.ceil(getattr(each, fits) / size)
        if each.name not in refused and need <= free:
            begin.append(each.name)
            free -= need
        elif (stop or each.name not in refused) and not skip:
            break
    return [each.name for each in left], begin, [each.name for each in waiting if each.name in refused]


@wrong("next_pass", "runs", "it returned None, where three lists of names are right")
def decides_nothing(blocks, free, size, running, waiting):
    pass


@wrong("next_pass", "runs", "it names ['z'], where each of ['a'] may be named once")
def names_somebody_else(blocks, free, size, running, waiting):
    return [], ["z"], []


@wrong("next_pass", "own work", "you call tinydist.serving, where this is solved")
def asks_the_library(*given):
    expected_waste(3.0)
    return decide(*given)


@wrong("next_pass", "passes", "In the end: deadlock: nobody runs, so nothing will ever be free")
def nobody_begins(blocks, free, size, running, waiting):
    return [each.name for each in running], [], []


@wrong("next_pass", "passes", "In the end: out of memory: it takes 4 blocks")
def all_begin(blocks, free, size, running, waiting):
    return [each.name for each in running], [each.name for each in waiting], []


@wrong("next_pass", "passes", "Who can never fit is not refused. It stands first in the queue, and those behind it")
def nobody_is_refused(*given):
    go_on, begin, _ = decide(*given, total="held")
    return go_on, begin, []


@wrong("next_pass", "passes", "Its prompt fits, and all that it will write does not")
def refused_by_the_prompt(*given):
    return decide(*given, total="tokens")


@wrong("next_pass", "passes", "It gives way and takes memory again in the same pass")
def begins_where_one_gave_way(*given):
    return decide(*given, late=True)


@wrong("next_pass", "passes", "Who does not fit is overtaken")
def the_small_overtake(*given):
    return decide(*given, skip=True)


@wrong("next_pass", "passes", "A request begins only if all that it will ever write fits")
def reserves_all(*given):
    return decide(*given, fits="longest")


@wrong("next_pass", "passes", "Who finds no block gives way itself, though others came after it")
def gives_way_itself(*given):
    return decide(*given, victim=-100)


@wrong("next_pass", "passes", "A request begins only when nobody runs")
def a_batch_after_the_other(blocks, free, size, running, waiting):
    go_on, begin, refused = decide(blocks, free, size, running, waiting)
    return go_on, [] if running else begin, refused


@wrong("next_pass", "passes", "Who is refused is in nobody's way: those behind it may begin in the same pass.")
def stops_at_the_refused(*given):
    return decide(*given, stop=True)


@wrong("next_pass", "passes", "a begins, nobody is refused, where it is right that nobody goes on, a b begin")
def one_begins(*given):
    go_on, begin, refused = decide(*given)
    return go_on, begin[:1], refused


@wrong("next_pass", "passes", "nobody begins, b e are refused, where it is right that nobody goes on, a begins")
def nobody_begins_where_one_is_refused(*given):
    go_on, begin, refused = decide(*given)
    return go_on, [] if refused else begin, refused


# mended_blocks


def kept(memory, calls, *, last=None, early=False, owners=1, copy=True, alias=False, leave=False, counted=True):
    """A right one, with the owners of each block as a set."""
    size, tables, lengths, has, found = memory.shape[1], {}, {}, [set() for _ in memory], []
    free = [*range(len(memory))]

    def take(name):
        block = free.pop()
        has[block] = {name}
        return block

    for what, name, *more in calls:
        if what == "write":
            for token in more[0]:
                table, n = tables.setdefault(name, []), lengths.get(name, 0)
                if n == len(table) * size:
                    table.append(take(name))
                elif len(has[table[-1]]) > owners:
                    old, table[-1] = table[-1], take(name)
                    has[old].discard(name)
                    has[table[-1]] = {name} if counted else set()
                    free += [old] if leave else []
                    if copy:
                        memory[table[-1]] = memory[old]
                memory[table[n // size], n % size] = token
                lengths[name] = n + 1
        elif what == "fork":
            mine = tables.setdefault(name, [])
            tables[more[0]], lengths[more[0]] = mine if alias else [*mine], lengths.get(name, 0)
            for block in mine:
                has[block].add(more[0])
        elif what == "end":
            for block in tables.pop(name, ()):
                has[block] -= {name}
                free += [block] if early or not has[block] else []
            lengths.pop(name, None)
        else:
            n = lengths.get(name, 0)
            found.append(memory[tables[name]].flatten()[: last(n, size) if last else n])
    return found


@wrong("mended_blocks", "runs", "it returned nothing (None), where a list of 2 is right, a tensor for each read")
def reads_nothing(memory, calls):
    pass


@wrong("mended_blocks", "runs", "read 0, of a gives an object of type list, where a tensor of one dim is right")
def reads_lists(memory, calls):
    return [each.tolist() for each in kept(memory, calls)]


@wrong("mended_blocks", "own work", "you call tinydist.serving, where this is solved")
def with_the_librarys_blocks(memory, calls):
    BlockPool(3, 4).allocate()
    return kept(memory, calls)


@wrong("mended_blocks", "lengths", "The last block is full, and none of it is read")
def full_is_empty(memory, calls):
    return kept(memory, calls, last=lambda n, size: n // size * size - size * (n % size == 0) + n % size)


@wrong("mended_blocks", "lengths", "The last block is read to its end, though some of its slots are not written.")
def to_the_end(memory, calls):
    return kept(memory, calls, last=lambda n, size: None)


@wrong("mended_blocks", "values", "A block is free while another still has it")
def freed_too_early(memory, calls):
    return kept(memory, calls, early=True)


@wrong("mended_blocks", "values", "Two have the block that one of them writes into")
def shared_by_two_is_written(memory, calls):
    return kept(memory, calls, owners=2)


@wrong("mended_blocks", "values", "Two have the block that one of them writes into")
def never_copied(memory, calls):
    return kept(memory, calls, owners=9)


@wrong("mended_blocks", "values", "The copy is empty: what is in the old block has to be there, too.")
def an_empty_copy(memory, calls):
    return kept(memory, calls, copy=False)


@wrong("mended_blocks", "values", "2 of 8 numbers of tokens of read 0, of a are wrong")
def one_table_for_both(memory, calls):
    return kept(memory, calls, alias=True)


@wrong("mended_blocks", "values", "The block that was copied is given back to the free ones, and others still have it")
def who_copies_frees_the_old_one(memory, calls):
    return kept(memory, calls, leave=True)


@wrong("mended_blocks", "values", "A copy has an owner, who counts")
def copies_have_no_owner(memory, calls):
    return kept(memory, calls, counted=False)


# plan_batch


def planned(
    model,
    gpu,
    size,
    shared,
    own,
    goal,
    *,
    up=1,
    common=True,
    weights=1,
    read=1,
    numbers=2,
    both=min,
    fits=le,
    timely=le,
):
    """A right one. ``common``: are blocks in common there once?"""
    token = numbers * model.layers * model.kv_heads * model.head_dim * model.kept
    held = model.parameters * model.weight
    once = shared // size if common else 0
    blocks = (shared - once * size + own + up * (size - 1)) // size
    fit, left = 0, gpu.memory - weights * held - once * size * token
    while fits((fit + 1) * blocks * size * token, left):
        fit += 1
    time, bytes_read = 0, (own + shared * read) * token
    while timely(held + (time + 1) * bytes_read, goal * gpu.bandwidth):
        time += 1
    batch = both(fit, time)
    rate = batch / ((held + batch * bytes_read) / gpu.bandwidth)
    return {"blocks": blocks, "in memory": fit, "in time": time, "batch": batch, "tokens a second": rate}


@wrong("plan_batch", "blocks", "it returned nothing (None), where it should return a dict: 'blocks', 'in memory'")
def plans_nothing(model, gpu, size, shared, own, goal):
    pass


@wrong("plan_batch", "own work", "you call tinydist.serving, where this is solved")
def with_the_librarys_formula(*given):
    expected_waste(3.0)
    return planned(*given)


@wrong("plan_batch", "blocks", "The last block need not be full, and it is one: round up.")
def rounds_down(*given):
    return planned(*given, up=0)


@wrong("plan_batch", "blocks", "The blocks that all have in common are counted for each.")
def common_for_each(*given):
    return planned(*given, common=False)


@wrong("plan_batch", "memory", "The weights take memory, too.")
def weights_are_elsewhere(*given):
    return planned(*given, weights=0)


@wrong("plan_batch", "memory", "There is a key and a value.")
def keys_alone(*given):
    return planned(*given, numbers=1)


@wrong("plan_batch", "time", "Shared blocks are stored once, and read once for each")
def common_are_not_read(*given):
    return planned(*given, read=0)


@wrong("plan_batch", "batch", "It has to fit, and to be in time: the smaller of both.")
def the_larger(*given):
    return planned(*given, both=max)


@wrong("plan_batch", "rate", "So many a second would be with the goal as the time of a pass.")
def by_the_goal(*given):
    found = planned(*given)
    return found | {"tokens a second": found["batch"] / given[-1]}


@wrong("plan_batch", "memory", "What fills the memory to its last byte fits.")
def leaves_a_byte(*given):
    return planned(*given, fits=lt)


@wrong("plan_batch", "time", "What takes exactly the goal is in time: at most, it says.")
def in_less_than_the_goal(*given):
    return planned(*given, timely=lt)


@wrong("plan_batch", "memory", "Each of the kv_heads has keys and values of its own.")
def one_head(model, *more):
    return planned(model._replace(kv_heads=1), *more)


@wrong("plan_batch", "memory", "A key has head_dim numbers, and so has a value.")
def one_number_a_head(model, *more):
    return planned(model._replace(head_dim=1), *more)


@wrong("plan_batch", "time", "There are more")
def half_of_it(*given):
    found = planned(*given)
    return found | {"in time": found["in time"] // 2}
