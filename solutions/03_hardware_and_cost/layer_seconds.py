"""A layer's forward pass, predicted from three speeds: its products, its other operators, its messages."""

from math import isclose

from tinydist.hardware import published
from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import A100, BY_HAND, H100, SOLVED

MEASURED = dict(compute=271.2e12, memory=1732e9, wire=174.2e9)  # of A100s: sources are in the notebook


def case(about, batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire, **more):
    shape = (batch, sequence, width, heads, gpus, shares_tokens)
    return alone(lambda: (*shape, compute, memory, wire), about, **more)


def measured(name, shares_tokens):
    layer = published.LAYERS[name]
    shape = (layer.microbatch, layer.tokens, layer.width, layer.heads, layer.tensor_parallel, shares_tokens)
    return case(f"the published layer of {name}, on 8 A100s", *shape, **MEASURED, facts=layer.forward)


def test_cases():
    # In the first one no two operators have as many bytes: what is missing can be told from how much.
    h100 = H100.peak_of("bfloat16"), 3.35e12, 450e9
    yield case("a layer of 40 heads on 5 H100s", 1, 1408, 5120, 40, 5, False, *h100)
    yield case("the same layer, its tokens shared", 1, 1410, 5120, 40, 5, True, *h100)
    yield case("GPT-3's layer on 4 H100s", 1, 2048, 12288, 96, 4, False, *h100)
    yield measured("22B", False)
    yield measured("22B, sequence parallel", True)
    yield case("a layer on one GPU, which has nobody to talk to", 2, 512, 1024, 16, 1, False, 100e12, 2e12, 1e9)
    yield case("one GPU, told to share its tokens with itself", 2, 512, 1024, 16, 1, True, 100e12, 2e12, 1e9)
    yield case("two GPUs whose arithmetic takes no time", 1, 256, 512, 8, 2, False, 1e30, 1e12, 1e11)
    yield case("four GPUs whose memory takes no time", 4, 128, 1024, 8, 4, True, 1e14, 1e30, 1e11)
    yield case("four GPUs whose wires take no time", 3, 640, 768, 12, 4, False, A100.peak_of("bfloat16"), 2e12, 1e30)


class Sums(Values):
    """Of the first sum that is wrong: what it lacks, or has too much of."""

    def general(self, trial, right):
        looks = zip((products_told, others_told, messages_told), trial.returned[0], right.returned[0])
        told = (look(mine, its, *trial.case.arguments(0)) for look, mine, its in looks if not isclose(mine, its))
        return next(told, "") or super().general(trial, right)


def products_told(mine, its, batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
    tokens, maps, head = batch * sequence, batch * heads / gpus, width / heads

    def seconds(m, k, n, count=1):
        return count * max(2 * m * k * n / compute, 2 * (m * k + k * n + m * n) / memory)

    def of_weights(queries, wide, gpus):
        """Their four products, of a layer that is so many times as wide there."""
        sizes = queries * width / gpus, wide * width / gpus
        up, down = seconds(tokens, width, sizes[1]), seconds(tokens, sizes[1], width)
        return [seconds(tokens, width, sizes[0]), seconds(tokens, width / gpus, width), up, down]

    attention = [seconds(sequence, head, sequence, maps), seconds(sequence, sequence, head, maps)]
    qkv, projection, up, _ = of_weights(3, 4, gpus)
    for name, each in {"QKV": qkv, "projection": projection, "MLP up or MLP down": up}.items():
        if isclose(mine, its - each):
            return f"The product {name} is missing"
    if isclose(mine, its - attention[0]):
        return "Scores or mix is missing, or you count 1 byte for each of their numbers, where 2 are right"
    others = {
        "QKV makes queries, keys and values: its n is 3 width / gpus": of_weights(1, 4, gpus) + attention,
        "The MLP is 4 times as wide as the layer": of_weights(3, 1, gpus) + attention,
        "Each GPU has 1/gpus of every weight matrix": of_weights(3, 4, 1) + attention,
        "Each GPU has 1/gpus of the heads": of_weights(3, 4, gpus) + [gpus * each for each in attention],
        "There is a map for each head of each sequence, and not one in all": of_weights(3, 4, gpus)
        + [each / maps for each in attention],
        "Each GPU has 1/gpus of the weights and heads": of_weights(3, 4, 1) + [gpus * each for each in attention],
    }
    return next((words for words, sizes in others.items() if isclose(mine, sum(sizes))), "")


def others_told(mine, its, batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
    numbers = batch * sequence * width  # of all tokens, and of those that this GPU normalizes and adds
    own, shared = (numbers / gpus, gpus) if shares_tokens else (numbers, 1)
    maps, hidden = batch * heads / gpus * sequence**2, 4 * numbers / gpus
    parts = {  # bytes
        "one of the two normalizations, or of the second tensor that each addition reads": 4 * own,
        "the two normalizations": 8 * own,
        "one of the two additions": 7 * own,
        "the two additions": 14 * own,
        "the softmax": 4 * maps,
        "the dropout of the maps": 5 * maps,
        "GELU": 4 * hidden,
        "the mask of the maps": maps,
        "the masks of the additions": 2 * own,
        "what GELU writes": 2 * hidden,
    }
    for name, nbytes in parts.items():
        if isclose(mine, its - nbytes / memory):
            return f"It lacks the bytes of {name}"
    too_much = {
        "A mask has 1 byte for each number, not 2": maps + 2 * own,
        "The mask of the maps has 1 byte for each number, not 2": maps,
        "The masks of the additions have 1 byte for each number, not 2": 2 * own,
        "GELU is dealt out: on each GPU it has 4 width / gpus numbers of a token": (gpus - 1) * 4 * hidden,
        "GELU has 4 width / gpus numbers of a token, as MLP up makes them": -3 * hidden,
        "The maps are dealt out by heads: sharing tokens changes nothing in them": 9 * maps * (1 / shared - 1),
        "Each GPU normalizes and adds all tokens if they are not shared": 22 * own * (shared / gpus - 1),
    }
    return next((words for words, nbytes in too_much.items() if isclose(mine, its + nbytes / memory)), "")


def messages_told(mine, its, batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
    if gpus == 1:
        return "One GPU has nobody to talk to"
    others = {
        "Of n bytes a rank keeps a part: it sends (p-1)/p n in each half of an all-reduce": gpus / (gpus - 1),
        "An all-reduce has two halves, and in each a rank sends (p-1)/p n bytes": gpus / (gpus - 1) / 2,
        "A step of the ring sends n/p bytes, and there are 2 (p-1) steps: 2 (p-1)/p n in all": gpus,
    }
    if shares_tokens:
        others |= {
            "The two halves take as long together as the all-reduce: shared tokens save no messages": 1 / 2,
            "All tokens are sent, also where they are shared": 1 / gpus,
        }
    return next((words for words, times in others.items() if isclose(mine, its * times)), "")


@exercise(
    title="Predict a layer",
    minutes=30,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own arithmetic", BY_HAND, SOLVED),
        Sums(
            "three sums of seconds: of products, of operators that wait for memory, of messages. On 1 to 8 GPUs, of "
            "data "
            "sheets and others, with and without shared tokens. Each must be right to a millionth",
            names=("the seconds of products", "the seconds of other operators", "the seconds of messages"),
        ),
    ],
    mistakes=[
        mistake(
            "An operator takes the longer of its arithmetic and its bytes, not first the one and then the other",
            "max(flops / compute, nbytes / memory)",
            "flops / compute + nbytes / memory",
        ),
        mistake(
            "There is an attention map for each head of each sequence: batch heads / gpus on each GPU",
            "batch * heads // gpus",
            "heads // gpus",
        ),
        mistake(
            "The softmax is missing: it reads the maps and writes them",
            "norms + softmax + dropout",
            "norms + dropout",
        ),
        mistake(
            "These are the seconds of the arithmetic alone, and scores and mix wait for memory: take the longer of "
            "arithmetic and bytes for each product by itself, and not for all together",
            "max(flops / compute, nbytes / memory)",
            "flops / compute",
        ),
        mistake(
            "A product takes 2 m k n FLOPs: each multiplication comes with an addition",
            "flops = count * 2 * m * k * n",
            "flops = count * m * k * n",
        ),
        mistake(
            "The masks are missing: each dropout also reads one, of 1 byte for each number",
            "(2 + 1 + 2)",
            "(2 + 2)",
            "3.5 * mine",
            "3 * mine",
        ),
        mistake(
            "Where the tokens are shared, each GPU normalizes and adds only its own: 1/gpus of all",
            "tokens // gpus if shares_tokens else tokens",
            "tokens",
        ),
        mistake(
            "There are two all-reduces, and each sends 2 (p-1)/p of its bytes",
            "2 * all_reduce",
            "all_reduce",
        ),
    ],
    hints=[
        "Begin with the messages, the shortest sum. Then the products: for each of the six, which m, k and n?",
        "With t = tokens and w = width the products on each GPU are: t x w by w x 3w/p; for each map sequence x "
        "w/heads by w/heads x sequence, and sequence x sequence by sequence x w/heads; t x w/p by w/p x w; t x w by "
        "w x 4w/p; t x 4w/p by 4w/p x w.",
        "In bytes, the second sum has 2 (2 + 2) t w for the normalizations, (2 + 2) and (2 + 1 + 2) for each number "
        "of the maps, (2 + 2) 4 t w / p for GELU, and 2 (2 + 2 + 1 + 2) t w for the additions. Which of these t are "
        "smaller if the tokens are shared?",
    ],
    why="With the notebook's numbers your three sums come to 7.2 ms, where 7.7 were published, and 6.6 where 7.2 "
    "were, 7 and 8 % too little. Three speeds do not know the shapes of the products, which are 0.44 ms in the "
    "notebook. So a run is planned before anyone rents a GPU, and so one finds out afterwards that something is wrong.",
)
def layer_seconds(batch, sequence, width, heads, gpus, shares_tokens, compute, memory, wire):
    """How many seconds does the forward pass of a layer take on each of the ``gpus`` GPUs that share it?

    Return three sums: of its products, of its other operators, and of its messages. Products get ``compute`` FLOP/s,
    the memory moves ``memory`` bytes/s, and an all-reduce of n bytes on p GPUs takes 2 (p-1)/p n / ``wire`` seconds.
    Numbers have 2 bytes, and those of dropout masks 1. Operators run one after another, each takes the longer of its
    FLOPs and its bytes, and nothing hides the messages.

    First sum: the six products of section 1 of the notebook: QKV, scores, mix, projection, MLP up and MLP down.

    Second sum: the softmax, which reads and writes the attention maps; the dropout after it, which reads maps and
    their mask and writes maps; and GELU, which reads and writes what MLP up has made. All of these are dealt out over
    the GPUs. Then two normalizations, which read and write the tokens; and two additions, which read two tensors of
    the tokens and one mask, and write one. If ``shares_tokens`` (sequence parallel), each GPU does this for 1/gpus of
    the tokens, else for all.

    Third sum: two all-reduces of all tokens; where tokens are shared each is split into two halves, which together
    take as long.
    """
    tokens = batch * sequence

    def product(count, m, k, n):
        # ? Seconds of so many products of an m x k and a k x n matrix
        flops = count * 2 * m * k * n
        nbytes = count * 2 * (m * k + k * n + m * n)
        return max(flops / compute, nbytes / memory)
        # .

    # ? Products, operators that wait for memory, messages
    maps = batch * heads // gpus
    head_width = width // heads
    part = width // gpus
    products = product(1, tokens, width, 3 * part)
    products += product(maps, sequence, head_width, sequence)
    products += product(maps, sequence, sequence, head_width)
    products += product(1, tokens, part, width)
    products += product(1, tokens, width, 4 * part)
    products += product(1, tokens, 4 * part, width)

    everything = 2 * tokens * width  # bytes
    mine = 2 * (tokens // gpus if shares_tokens else tokens) * width
    norms = 2 * 2 * mine
    additions = 2 * 3.5 * mine
    softmax = (2 + 2) * maps * sequence**2
    dropout = (2 + 1 + 2) * maps * sequence**2
    gelu = (2 + 2) * tokens * 4 * part
    others = (norms + softmax + dropout + gelu + additions) / memory

    all_reduce = 2 * (gpus - 1) / gpus * everything / wire
    return products, others, 2 * all_reduce
