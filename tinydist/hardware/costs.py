"""Cost model: time of an operator, of a message, and of each collective algorithm.

With latency alpha and bandwidth beta of the link, p ranks, and n bytes:

    message                             alpha + n/beta
    ring reduce-scatter, all-gather     (p-1) (alpha + n/(p beta))
    pairwise all-to-all                 (p-1) (alpha + n/(p beta))
    ring all-reduce                     2(p-1) (alpha + n/(p beta))          fewest bytes, most steps
    halving-doubling                    2 lg p alpha + 2 (p-1)/p n/beta      as few bytes, few steps
    recursive doubling                  lg p (alpha + n/beta)                fewest steps, all bytes in each
    tree all-reduce                     2 ceil(lg p) (alpha + n/beta)        few steps, all bytes in each
    star all-reduce                     2(p-1) (alpha + n/beta)              all through one rank
    star in m chunks                    (p-1) (m+1) (alpha + n/(m beta))     the same, in and out at the same time
    direct all-reduce                   2 (alpha + (p-1)/p n/beta)           fewest bytes, two steps, p-1 partners

Each follows from the algorithm's critical path: how many messages follow one another, and their sizes. The bytes that
each rank sends are counted next to the algorithms, in collectives, where parts may be uneven.

n is what NCCL's benchmarks call the size: the whole tensor of a rank; of an all-gather the whole output, of a
reduce-scatter the whole input, of a gather or scatter all that the root has. One rank alone pays nothing, nor sums.

Sources: Thakur, Rabenseifner, Gropp, Optimization of Collective Communication Operations in MPICH, 2005 (trees,
halving and doubling, pairwise); Patarasuk and Yuan, Bandwidth Optimal All-reduce Algorithms for Clusters of
Workstations, 2009 (ring); nccl-tests, doc/PERFORMANCE.md (sizes).
"""

from ..rules import amount, broken, count, one_of, power_of_2, validate
from .devices import Device
from .links import Link


def op_time(device: Device, flops, nbytes, dtype="float32") -> float:
    """Time of an operator on an idle device: launch overhead plus kernel time."""
    return kernel_time(device, flops, nbytes, dtype) + device.launch_overhead


def kernel_time(device: Device, flops, nbytes, dtype="float32", product=None) -> float:
    """max(FLOPs / peak, bytes / memory bandwidth): the roofline (Williams et al. 2009).

    ``nbytes`` are read and written. An operator without FLOPs may have any dtype. ``product``: (batch, rows, columns,
    inner) of one; where the device has tiles, they say how long it computes (tiles.py).
    """
    if not isinstance(device, Device):  # not by @validate, which would double what a replay takes for each operator
        raise broken("operator", "device", Device, device)
    if not (amount(flops) and amount(nbytes)):
        raise ValueError(f"operator: flops and nbytes must be finite numbers >= 0, got {flops} and {nbytes}")
    compute = flops / device.peak_of(dtype) if flops else 0.0
    if compute and product and device.tiles:
        within = device.tiles.rate_within(device.peak_of(dtype), device.memory_bandwidth)
        compute = device.tiles.seconds(product, within, device.memory_bandwidth)
    return max(compute, nbytes / device.memory_bandwidth)


@validate(link=Link)
def p2p_time(nbytes, link: Link) -> float:
    """alpha + n/beta."""
    if not amount(nbytes):
        raise broken("message", "nbytes", amount, nbytes)
    return link.latency + nbytes / link.bandwidth


def total_time(steps, link) -> float:
    """Of steps: (how many, bytes of each). Without any there need be no link."""
    return sum(times * p2p_time(nbytes, link) for times, nbytes in steps if times)


def _size(nbytes, ranks):
    """The bytes, once both are known to make sense."""
    if not (count(ranks) and amount(nbytes)):
        raise ValueError(f"collective: ranks must be >= 1 and nbytes a finite number >= 0, got {ranks} and {nbytes}")
    return nbytes


# Rings: in each step every rank sends 1/p of the tensor to the next; pairwise, to another one each time.


def ring_steps(part, ranks):
    """Steps of a ring with parts of this many bytes (the largest, if uneven)."""
    return [(ranks - 1, part)]


def ring_reduce_scatter(nbytes, ranks, link) -> float:
    """(p-1) (alpha + n/(p beta))."""
    return total_time(ring_steps(_size(nbytes, ranks) / ranks, ranks), link)


def ring_all_gather(nbytes, ranks, link) -> float:
    """(p-1) (alpha + n/(p beta))."""
    return total_time(ring_steps(_size(nbytes, ranks) / ranks, ranks), link)


def ring_all_reduce(nbytes, ranks, link) -> float:
    """2(p-1) (alpha + n/(p beta)): a reduce-scatter, then an all-gather."""
    return total_time(2 * ring_steps(_size(nbytes, ranks) / ranks, ranks), link)


def pairwise_all_to_all(nbytes, ranks, link) -> float:
    """(p-1) (alpha + n/(p beta)): in step k each rank sends to the one k further."""
    return total_time(ring_steps(_size(nbytes, ranks) / ranks, ranks), link)


# Binomial trees: in each step those that have the tensor send it to as many that have not.


def tree_steps(nbytes, ranks):
    return [((ranks - 1).bit_length(), nbytes)]


def tree_broadcast(nbytes, ranks, link) -> float:
    """ceil(lg p) (alpha + n/beta)."""
    return total_time(tree_steps(_size(nbytes, ranks), ranks), link)


def tree_reduce(nbytes, ranks, link) -> float:
    """ceil(lg p) (alpha + n/beta): a broadcast, backwards."""
    return tree_broadcast(nbytes, ranks, link)


def tree_all_reduce(nbytes, ranks, link) -> float:
    """2 ceil(lg p) (alpha + n/beta): a reduce, then a broadcast. NCCL's trees cut n in chunks, and pay less."""
    return tree_reduce(nbytes, ranks, link) + tree_broadcast(nbytes, ranks, link)


# Halving and doubling: partners exchange 1/2, 1/4, 1/8 ... of the tensor, and then the other way round.

partners = one_of(("nearest", "farthest"))  # with whom the first, largest exchange is


def halving_doubling_steps(ranks, piece):
    """``piece(k)``: bytes of 1/2^k of the tensor, the larger half each time. Ranks beyond the largest power of 2 hand
    all of it to partners before, and get it after."""
    halvings = ranks.bit_length() - 1
    beyond = [(int(ranks > 2**halvings), piece(0))]
    halves = [(1, piece(step)) for step in range(1, halvings + 1)]
    return beyond + halves + halves[::-1] + beyond


def halving_doubling_all_reduce(nbytes, ranks, link) -> float:
    """2 lg p alpha + 2 (p-1)/p n/beta (Rabenseifner), in whichever order the partners come.

    If p is no power of 2, the ranks beyond one give their tensors to partners, and get the result back:
    2 (alpha + n/beta) more.
    """
    size = _size(nbytes, ranks)
    return total_time(halving_doubling_steps(ranks, lambda step: size / 2**step), link)


def recursive_doubling_steps(nbytes, ranks):
    """All n in each step. Ranks beyond the largest power of 2 hand it to partners before, and get it after."""
    doublings = ranks.bit_length() - 1
    return [(doublings + 2 * (ranks > 2**doublings), nbytes)]


def recursive_doubling_all_reduce(nbytes, ranks, link) -> float:
    """lg p (alpha + n/beta); 2 (alpha + n/beta) more if p is no power of 2."""
    return total_time(recursive_doubling_steps(_size(nbytes, ranks), ranks), link)


# Stars: one message after the other.


def star_steps(nbytes, ranks):
    return [(ranks - 1, nbytes)]


def star_gather(nbytes, ranks, link) -> float:
    """(p-1) (alpha + n/(p beta)): the root receives one part after the other."""
    return total_time(star_steps(_size(nbytes, ranks) / ranks, ranks), link)


def star_all_reduce(nbytes, ranks, link) -> float:
    """2(p-1) (alpha + n/beta): all send everything to the root, which sends the sum back to each."""
    return total_time(2 * star_steps(_size(nbytes, ranks), ranks), link)


def star_in_chunks_steps(sizes, ranks):
    """Chunks of these bytes, the largest first, each to the root from p-1 ranks, and back while the next one comes."""
    return [(ranks - 1, sizes[0])] + [(ranks - 1, size) for size in sizes]


@validate(chunks=count)
def star_in_chunks_all_reduce(nbytes, ranks, link, chunks) -> float:
    """(p-1) (m+1) (alpha + n/(m beta)): the root sends the sum of a chunk back while it receives the next chunk."""
    size = _size(nbytes, ranks)
    return (ranks - 1) * (chunks + 1) * p2p_time(size / chunks, link)


# Direct exchanges: each rank sends to all others at once. Latencies pass together, and the messages share a port.


def direct_steps(part, ranks):
    """One step in which the rank with the largest part, of this many bytes, receives or sends it p-1 times."""
    return [(int(ranks > 1), (ranks - 1) * part)]


def direct_reduce_scatter(nbytes, ranks, link) -> float:
    """alpha + (p-1)/p n/beta."""
    return total_time(direct_steps(_size(nbytes, ranks) / ranks, ranks), link)


def direct_all_gather(nbytes, ranks, link) -> float:
    """alpha + (p-1)/p n/beta."""
    return total_time(direct_steps(_size(nbytes, ranks) / ranks, ranks), link)


def direct_all_reduce(nbytes, ranks, link) -> float:
    """2 (alpha + (p-1)/p n/beta): a reduce-scatter, then an all-gather."""
    return direct_reduce_scatter(nbytes, ranks, link) + direct_all_gather(nbytes, ranks, link)


# Two levels.


@validate(nbytes=amount, ranks_per_node=count, nodes=count)
def hierarchical_all_reduce(nbytes, ranks_per_node, nodes, intra_link, inter_link) -> float:
    """A reduce-scatter in each node, an all-reduce of each part across the nodes, an all-gather in each node.

    With g ranks in each of k nodes: 2(g-1) (a_in + n/(g b_in)) + 2(k-1) (a_out + n/(g k b_out)). If only the
    network takes time, that is (g k - 1)/(k - 1) times as fast as one flat ring. ``inter_link`` is what a device has
    while all of its node send: ``cluster.inter_node_shared``. Source: Thakur et al. 2005, applied on each level.
    """
    within = ring_all_reduce(nbytes, ranks_per_node, intra_link)
    return within + ring_all_reduce(nbytes / ranks_per_node, nodes, inter_link)


@validate(nbytes=amount, ranks_per_node=power_of_2, nodes=power_of_2, first=partners)
def halving_doubling_over_nodes(nbytes, ranks_per_node, nodes, intra_link, inter_link, first="nearest") -> float:
    """Halving and doubling among g ranks in each of k nodes, both powers of 2, all links of a kind alike.

    nearest first     2 lg g a_in + 2 (g-1)/g n/b_in + 2 lg k a_out + 2 (k-1)/(g k) n/b_out
    farthest first    2 lg k a_out + 2 (k-1)/k n/b_out + 2 lg g a_in + 2 (g-1)/(g k) n/b_in

    What comes first has all n to halve, what comes then has a part.
    """
    near, far = (ranks_per_node, intra_link), (nodes, inter_link)
    (ranks, link), (others, their_link) = (near, far) if first == "nearest" else (far, near)
    then = halving_doubling_all_reduce(nbytes / ranks, others, their_link)
    return halving_doubling_all_reduce(nbytes, ranks, link) + then


@validate(ranks_per_node=count, nodes=count)
def multi_ring_all_reduce(nbytes, ranks_per_node, nodes, intra_link, inter_link) -> float:
    """g rings through g ranks in each of k nodes, each with 1/g of the tensor, at the same time.

    2(p-1) max(a_in + (g-1) n/(g p b_in), a_out + n/(g p b_out)), p = g k; of a single node all g rings stay inside.
    What several rings send to the same neighbor is one message: they run beside one another, and share its bandwidth.
    """
    ranks, crossing = ranks_per_node * nodes, int(nodes > 1)
    part, within = _size(nbytes, ranks) / ranks / ranks_per_node, ranks_per_node - crossing
    inside = total_time([(int(within > 0), within * part)], intra_link)
    return 2 * (ranks - 1) * max(inside, total_time([(crossing, part)], inter_link))
