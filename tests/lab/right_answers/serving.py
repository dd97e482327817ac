"""Other right answers to the exercises of 14_serving: they must pass."""

import math
from copy import deepcopy

import torch
from lab.registered import others, solved

RIGHT_ANSWERS, right = others()


class Pool:
    """On sets of owners."""

    def __init__(self, blocks, size):
        self.owners, self.size = [set() for _ in range(blocks)], size
        self.tables, self.lengths, self.copied, self.refused = {}, {}, [], []

    def run(self, events):
        for number, (what, name, *more) in enumerate(events):
            if getattr(self, what)(name, *more) == "refused":
                self.refused.append(number)
        return self.tables, [len(each) for each in self.owners], self.copied, self.refused

    def take(self, name):
        block = min(i for i, owners in enumerate(self.owners) if not owners)
        self.owners[block].add(name)
        return block

    def fork(self, name, new):
        self.tables[new], self.lengths[new] = list(self.tables[name]), self.lengths[name]
        for block in self.tables[new]:
            self.owners[block].add(new)

    def drop(self, name, tokens):
        self.lengths[name] -= tokens
        while len(self.tables[name]) * self.size >= self.lengths[name] + self.size:
            self.owners[self.tables[name].pop()].discard(name)

    def end(self, name):
        self.drop(name, self.lengths[name])
        del self.tables[name], self.lengths[name]

    def append(self, name, tokens):
        table, length = self.tables.get(name, []), self.lengths.get(name, 0)
        copy = bool(table) and len(self.owners[table[-1]]) > 1 and length % self.size != 0 and tokens > 0
        new = math.ceil((length + tokens) / self.size) - len(table)
        if copy + new > sum(not each for each in self.owners):
            return "refused"
        self.tables[name], self.lengths[name] = table, length + tokens
        if copy:
            old = table.pop()
            table.append(self.take(name))
            self.owners[old].discard(name)
            self.copied.append((old, table[-1]))
        for _ in range(new):
            table.append(self.take(name))
        return None


@right("share_blocks")
def with_sets_of_owners(blocks, size, events):
    return Pool(blocks, size).run(events)


@right("share_blocks")
def counted_anew_each_time(blocks, size, events):
    """The tables are all there is: who has a block is seen in them. They are tuples."""
    tables, lengths, copies, refused = {}, {}, (), []

    def references():
        return [sum(block in table for table in tables.values()) for block in range(blocks)]

    for number, (what, name, *more) in enumerate(events):
        if what == "fork":
            tables[more[0]], lengths[more[0]] = tables[name], lengths[name]
            continue
        length = lengths.get(name, 0) + {"append": 1, "drop": -1}.get(what, 0) * (more[0] if more else 0)
        table, many = tables.get(name, ()), -(-length // size)
        if what == "end":
            del tables[name], lengths[name]
        elif what == "drop":
            tables[name], lengths[name] = table[:many], length
        else:
            full = lengths.get(name, 0) // size
            stay = [*table[:full], *(block for block in table[full:] if references()[block] == 1 or not more[0])]
            free = [block for block, count in enumerate(references()) if count == 0][: many - len(stay)]
            if len(stay) + len(free) < many:
                refused.append(number)
                continue
            copies += tuple((old, free[0]) for old in table[len(stay) :])
            tables[name], lengths[name] = (*stay, *free), length
    return tables, references(), copies, refused


@right("share_blocks")
def token_by_token_and_back_where_it_fails(blocks, size, events):
    pool, refused = Pool(blocks, size), []
    for number, (what, name, *more) in enumerate(events):
        before, calls = deepcopy(pool), [more] if what != "append" else [[1]] * more[0] or [[0]]
        if "refused" in [getattr(pool, what)(name, *each) for each in calls]:
            pool = before
            refused.append(number)
    tables, references, copies, _ = pool.run([])
    return [tables, tuple(references), tuple(copies), refused]


@right("decode_by_table")
def from_the_last_block_to_the_first(q, k, v, keys, values, tables, lengths, window):
    (_, size, _), out = keys.shape, []
    for query, key, value, table, n in zip(q, k, v, tables, lengths):
        keys[table[n // size]][n % size], values[table[n // size]][n % size] = key, value
        first, parts = max(n + 1 - window, 0), []
        for place in reversed(range(first // size, n // size + 1)):
            begin, end = max(first, place * size), min(n + 1, place * size + size)
            here = slice(begin - place * size, end - place * size)
            scores = keys[table[place]][here] @ (query / math.sqrt(query.numel()))
            weights = torch.exp(scores - scores.max())
            parts.append((scores.max(), weights.sum(), weights @ values[table[place]][here]))
        most = max(top for top, _, _ in parts)
        factors = [torch.exp(top - most) for top, _, _ in parts]
        total = sum(factor * weight for factor, (_, weight, _) in zip(factors, parts))
        out.append(sum(factor * mixed for factor, (_, _, mixed) in zip(factors, parts)) / total)
    return torch.stack(out)


@right("decode_by_table")
def whole_blocks_that_are_masked(q, k, v, keys, values, tables, lengths, window):
    size, out = keys.shape[1], []
    for query, key, value, table, n in zip(q, k, v, tables, lengths):
        keys[table[n // size], n % size], values[table[n // size], n % size] = key, value
        first, scores, mixed = max(n + 1 - window, 0), [], 0
        places = range(first // size, n // size + 1)
        for place in places:
            token = torch.arange(place * size, place * size + size)
            masked = (token < first) | (token > n)
            scores.append((keys[table[place]] @ query * len(query) ** -0.5).masked_fill(masked, -math.inf))
        for place, weights in zip(places, torch.cat(scores).softmax(0).split(size)):
            mixed = mixed + weights @ values[table[place]]
        out.append(mixed)
    return torch.stack(out)


@right("decode_by_table")
def in_two_passes_over_the_blocks(q, k, v, keys, values, tables, lengths, window):
    """All scores first, which are a number a token; then the values."""
    size, out = keys.shape[1], torch.empty(len(q), v.shape[1], dtype=v.dtype)
    for b, n in enumerate(lengths):
        keys[tables[b][n // size], n % size] = k[b]
        values[tables[b][n // size], n % size] = v[b]
        seen = range(max(0, n - window + 1), n + 1)
        scores = torch.full((n + 1,), -math.inf, dtype=q.dtype)
        for at in range(seen.start // size, n // size + 1):
            scores[at * size : (at + 1) * size] = (keys[tables[b][at]] @ q[b])[: n + 1 - at * size]
        scores[: seen.start] = -math.inf
        weights = (scores / math.sqrt(q.shape[1])).softmax(0)
        out[b] = 0
        for at in range(seen.start // size, n // size + 1):
            some = weights[at * size : (at + 1) * size]
            out[b] += some @ values[tables[b][at], : len(some)]
    return out


@right("next_pass")
def in_tuples_and_from_the_last(*given):
    return tuple(tuple(reversed(names)) for names in solved("next_pass")(*given))


@right("next_pass")
def by_how_many_first_ones_fit(blocks, free, size, running, waiting):
    """As many of the first as all the memory is enough for."""
    take = [math.ceil(each.tokens / size) for each in running]
    stay = max(n for n in range(len(running) + 1) if sum(take[:n]) <= blocks)
    never = [each for each in waiting if each.longest > blocks * size]
    begin, left = [], blocks - sum(take[:stay])
    for each in waiting:
        if each in never:
            continue
        left -= math.ceil(each.tokens / size)
        if left < 0 or stay < len(running):
            break
        begin.append(each.name)
    return [each.name for each in running[:stay]], begin, [each.name for each in never]


@right("next_pass")
def one_after_the_other(blocks, free, size, running, waiting):
    """Recursion: without the last, if it does not fit."""
    mine, theirs = ([[each.name, -(-each.tokens // size) - each.held] for each in some] for some in (running, waiting))
    if sum(more for _, more in mine) > free:
        go_on, _, refused = one_after_the_other(blocks, free + running[-1].held, size, running[:-1], waiting)
        return go_on, [], refused
    refused = [each.name for each in waiting if -(-each.longest // size) > blocks]
    free -= sum(more for _, more in mine)
    begin = []
    for name, more in (each for each in theirs if each[0] not in refused):
        free -= more
        begin += [name] if free >= 0 else []
        if free < 0:
            break
    return [name for name, _ in mine], begin, refused
