"""Other right answers to the exercises of 03c_latency_and_nccl: they must pass."""

from lab.registered import others

RIGHT_ANSWERS, right = others()


@right("ring_latency")
def by_recursion_from_the_end(flight, busy, steps):
    """When rank r is ready for step s, looked up."""
    p, known = len(flight), {}
    for s in range(steps + 1):
        for r in range(p):
            before = (r - 1) % p
            own, left = known.get((r, s - 1), 0.0), known.get((before, s - 1), 0.0)
            known[r, s] = 0.0 if s == 0 else max(own + busy[r], left + busy[before] + flight[before])
    return max(known[r, steps] for r in range(p))


@right("read_benchmark")
def in_rows(collective, ranks, seconds, wire):
    part = {"all_reduce": 2}.get(collective, 1) * (1 - 1 / ranks)
    rows = sorted((size, part * size / took) for size, took in seconds.items())
    best = sorted(speed for _, speed in rows)[-1]
    for size, speed in rows:
        if 2 * speed >= best:
            return [best, size, bool(best > wire)]


@right("choose_protocol")
def in_a_sorted_list(nbytes, per_node, nodes, protocols):
    found = []
    for name, (base, inside, between, posting, bandwidth) in protocols.items():
        near = 2 * nodes * (per_node - 1)
        pace = inside if nodes == 1 or inside > posting else posting
        share = 2 * (1 - 1 / (per_node * nodes))
        found.append((base + near * pace + (2 * nodes - 2) * between + share * nbytes / bandwidth, name))
    seconds, name = sorted(found)[0]
    return [name, seconds]


@right("choose_algorithm")
def step_by_step(nbytes, per_node, nodes, inside, between):
    """A list of messages for each, one after another: (bytes, link)."""
    p, link = per_node * nodes, between if nodes > 1 else inside
    plans = {"ring": [(nbytes / p, link)] * (2 * (p - 1))}
    if nodes > 1 < per_node:
        in_node = [(nbytes / per_node, inside)] * (2 * (per_node - 1))
        plans["hierarchical"] = in_node + [(nbytes / p, between)] * (2 * (nodes - 1))
    if p & (p - 1) == 0:
        distances = [1 << i for i in range(p.bit_length() - 1)]
        links = [inside if distance < per_node else between for distance in distances]
        plans["recursive doubling"] = [(nbytes, each) for each in links]
        plans["nearest first"] = 2 * [(nbytes / (2 * d), each) for d, each in zip(distances, links, strict=True)]
    times = {name: sum(each.latency + n / each.bandwidth for n, each in plan) for name, plan in plans.items()}
    if nodes > 1 < per_node:
        n = nbytes / p / per_node
        busiest = max(inside.latency + (per_node - 1) * n / inside.bandwidth, between.latency + n / between.bandwidth)
        times["several rings"] = (p - 1) * 2 * busiest
    name = min(times, key=times.get)
    return name, times[name]


@right("choose_algorithm")
def sorted_pairs_in_a_list(nbytes, per_node, nodes, inside, between):
    g, k, n = per_node, nodes, nbytes
    (a, b), (c, d) = ((link.latency, link.bandwidth) for link in (inside, between))
    found = [(2 * (g * k - 1) * ((c if k > 1 else a) + n / (g * k) / (d if k > 1 else b)), "ring")]
    lg_g, lg_k = g.bit_length() - 1, k.bit_length() - 1
    if 2**lg_g == g and 2**lg_k == k:
        found.append((lg_g * a + lg_k * c + n * (lg_g / b + lg_k / d), "recursive doubling"))
        found.append((2 * (lg_g * a + lg_k * c + n * ((1 - 1 / g) / b + (1 / g - 1 / g / k) / d)), "nearest first"))
    if g > 1 and k > 1:
        found.append((2 * ((g - 1) * (a + n / g / b) + (k - 1) * (c + n / g / k / d)), "hierarchical"))
        found.append((2 * (g * k - 1) * max(a + (g - 1) * n / g**2 / k / b, c + n / g**2 / k / d), "several rings"))
    seconds, name = sorted(found)[0]
    return [name, seconds]


@right("choose_algorithm")
def with_functions_of_its_own(nbytes, per_node, nodes, inside, between):
    def message(n, link):
        return link.latency + n / link.bandwidth

    def ring_of(ranks, n, link):
        return 2 * (ranks - 1) * message(n / ranks, link)

    def halving_of(ranks, n, link):
        if ranks == 1:
            return 0
        return 2 * message(n / 2, link) + halving_of(ranks / 2, n / 2, link)

    p = per_node * nodes
    best = "ring", ring_of(p, nbytes, between if nodes > 1 else inside)
    others = []
    if nodes > 1 and per_node > 1:
        inner = ring_of(per_node, nbytes, inside)
        others.append(("hierarchical", inner + ring_of(nodes, nbytes / per_node, between)))
        part = nbytes / per_node / p
        pace = max(message((per_node - 1) * part, inside), message(part, between))
        others.append(("several rings", 2 * (p - 1) * pace))
    if p in (2, 4, 8, 16, 32, 64, 128):
        near, far = len(bin(per_node)) - 3, len(bin(nodes)) - 3
        others.append(("recursive doubling", near * message(nbytes, inside) + far * message(nbytes, between)))
        halving = halving_of(per_node, nbytes, inside) + halving_of(nodes, nbytes / per_node, between)
        others.append(("nearest first", halving))
    for each in others:
        if each[1] < best[1]:
            best = each
    return best
