"""Reduce along a binomial tree: in each round half of the ranks hand over their sums, and are done."""

from collections import Counter

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Case, Memory, Messages, Own, Seconds, Values, Waits, Wrong, exercise, mistake

from .chapter import BY_HAND, FLOAT, LARGE, SOLVED, numbers


def case(ranks, dst, *shape, dtype=torch.float32, measured=False, changed=None, **how):
    about = f"dst={dst}, {' x '.join(map(str, shape))} numbers each" + (", in another order of events" if how else "")
    if changed is not None:
        about += f", and those that rank {changed} sends changed on the way"
    return Case(ranks, lambda rank: (numbers(rank, shape, dtype), dst), about, measured, changed, facts=dst, how=how)


def test_cases():
    for ranks, dst in [(2, 0), (2, 1), (3, 0), (3, 2), (4, 1), (5, 0), (6, 5), (7, 3), (8, 0), (9, 4), (1, 0)]:
        yield case(ranks, dst, 5)
    yield case(3, 1, 2, 3, dtype=torch.float64)
    yield case(5, 4, 5, dtype=torch.int64)
    yield case(6, 2, 5, schedule="shuffle", seed=1)
    yield case(6, 0, 5, changed=5)  # a leaf of every binomial tree
    for ranks in (4, 8):
        yield case(ranks, 1, LARGE, measured=True)


class OnDst(Values):
    """The others' tensors may hold anything."""

    def seen(self, trial):
        if trial.error is not None:
            return None
        dst = trial.case.facts
        return {(dst, ""): trial.arguments[dst][0]}

    def general(self, trial, right):
        """Rank r holds 10**r: then the digits of the sum count how often each rank was added."""
        dst, shape = trial.case.facts, trial.case.arguments(0)[0].shape
        if torch.equal(trial.arguments[dst][0], trial.case.arguments(dst)[0]):
            return f"rank {dst} still has its own numbers: nothing was added"
        again = trial.again(arguments=lambda rank: (torch.full(shape, 10.0**rank, dtype=torch.float64), dst))
        number = 0 if again.error else again.arguments[dst][0].max().item()
        if number != int(number):
            return ""
        digits = f"{number:0{trial.case.ranks}.0f}"[::-1]
        if digits.count("1") == 1 and set(digits) == {"0", "1"}:
            alone = f"there are the numbers of rank {digits.index('1')} alone"
            return f"{alone}: they take the place of the others', or are the largest"
        odd = [f"those of rank {rank} are in it {digit} times" for rank, digit in enumerate(digits) if digit != "1"]
        return f"each rank's numbers should be in the sum once, but {', '.join(odd)}" if odd and number else ""


class OneEach(Messages):
    """Trees of the same depth differ in who receives from whom."""

    def judge(self, exercise, trial, right):
        mine, its = ([ends(each, end) for end in (0, 1)] for each in (self.seen(trial), self.seen(right)))
        for does, have, want in zip(("sends", "receives"), mine, its):
            rank, count = max(have.items(), key=lambda item: item[1], default=(0, 0))
            enough = max(want.values(), default=0)
            if count > enough:
                star = ": all goes to one rank, a star" if len(have) == 1 else ""
                raise Wrong(
                    f"rank {rank} {does} {count} messages, where {enough} {'is' if enough == 1 else 'are'} enough{star}"
                )


def ends(pairs, end):
    """rank -> how many messages it sends (0) or receives (1)."""
    found = Counter()
    for pair, count in pairs.items():
        found[pair[end]] += count
    return found


@exercise(
    title="Reduce along a tree",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Waits("each message is received and waited for"),
        OnDst("on 1 to 9 ranks, whatever dst is, rank dst has the sum, in the tensor itself"),
        Own("nothing but messages", BY_HAND, SOLVED, only=["message"]),
        Bytes("(p-1) n in all", together=True),
        OneEach("no rank sends more than one, none receives more than ceil(lg p): 3 on 8 ranks, where a star has 7"),
        Memory("two tensors besides: what arrives, and what arrived before it", slack=LARGE * FLOAT),
        Seconds(
            "ceil(lg p) (alpha + n/beta)",
            "In each round all ranks that are still there should be busy: one half sends, the other receives",
            room=1.05,
        ),
    ],
    mistakes=[
        mistake(
            "The sum stands on rank 0, and is asked for on dst: count the ranks from dst", "(rank - dst) % p", "rank"
        ),
        mistake(
            "Not every rank has somebody to receive from: look whether me + distance is below p",
            "if me + distance < p:",
            "if True:",
        ),
        mistake("What arrives is not added to what stands there", "tensor += arrived", "tensor.copy_(arrived)"),
        mistake(
            "The last round is missing: it goes on until distance is p or more, and p need not be a power of two",
            "while distance < p:",
            "while 2 * distance <= p:",
        ),
        mistake(
            "Every rank that has sent its sum is done: from then on it sends and receives nothing",
            "            return\n",
            "",
        ),
        mistake(
            "Nothing is added to the tensor of dst: it receives, where in a broadcast it sends, and adds in place, "
            "with +=",
            "            dist.send(tensor, (rank - distance) % p)\n            return\n",
            "            dist.recv(tensor, (rank - distance) % p)\n            return\n",
            "            dist.recv(arrived, (rank + distance) % p)\n            tensor += arrived",
            "            dist.send(tensor, (rank + distance) % p)",
        ),
        mistake(
            "These are the rounds of the broadcast, in its order: ranks hand over before their own sum is complete. "
            "Played backwards, the largest distance comes first",
            "me % (2 * distance) == distance",
            "distance <= me < 2 * distance",
            "            return\n",
            "",
            "if me + distance < p:",
            "if me < distance and me + distance < p:",
        ),
        mistake(
            "me is a place, counted from dst: the rank at place m is (m + dst) % p",
            "(rank - distance) % p",
            "me - distance",
            "(rank + distance) % p",
            "me + distance",
        ),
    ],
    hints=[
        "Play the tree of the notebook backwards, every arrow turned round. Or start with neighbors: of the pairs "
        "(0, 1), (2, 3), (4, 5), ... who sends, and who is there in the next round?",
        "Count the ranks from dst, me = (rank - dst) % p, so that 0 is the goal. After the round of distance 1 the "
        "even ones are there, after distance 2 those that 4 divides.",
        "So in the round of a distance those with me % (2 * distance) == distance send, to me - distance, and are "
        "done. The others receive from me + distance, if there is such a rank, and add.",
    ],
    why="It is half of an all-reduce for small tensors, and the way up in the trees of NCCL, which go in chunks. A sum "
    "has ceil(lg p) additions in a row then, instead of p-1, and so it also rounds less often.",
)
def tree_reduce(tensor, dst):
    """Add up all ranks' tensors on rank ``dst``, in place, along a binomial tree.

    In each round half of the ranks that are still there send their sums and are done. Only ``dst`` needs the whole sum:
    the tensors of the others may be overwritten.
    """
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - dst) % p  # the place of this rank, counted from dst
    arrived = torch.empty_like(tensor)
    distance = 1
    while distance < p:
        # ? Who sends in this round, and is done? Who receives, and adds?
        if me % (2 * distance) == distance:
            dist.send(tensor, (rank - distance) % p)
            return
        if me + distance < p:
            dist.recv(arrived, (rank + distance) % p)
            tensor += arrived
        # .
        distance *= 2
