"""Wrong answers to the exercises of 09b_latent_attention: each with the property that rejects it, and its message."""

import math

import torch
import torch.nn.functional as F
from lab.registered import collection, solved

from tinydist.attention import latent_bytes_per_token

WRONG_ANSWERS, wrong = collection()


# latent_attention


@wrong("latent_attention", "own work", "scaled_dot_product_attention")
def makes_all_and_calls_torch(q, rows, up, r):
    F.scaled_dot_product_attention(q, q, q)
    return solved("latent_attention")(q, rows, up, r)


@wrong("latent_attention", "FLOPs", "with 0 FLOPs")
def products_and_sums(q, rows, up, r):
    d = q.shape[-1] - r
    latents, keys, of_keys, of_values = rows[:, None, :, :-r], rows[:, None, :, -r:], up[:, :d], up[:, d:]

    def product(a, b):
        return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)

    made, values = product(latents, of_keys.mT), product(latents, of_values.mT)
    scores = (product(q[..., :d], made.mT) + product(q[..., d:], keys.mT)) / q.shape[-1] ** 0.5
    T, S = scores.shape[-2:]
    seen = torch.ones(T, S, dtype=torch.bool).tril(S - T)
    return product(scores.masked_fill(~seen, -math.inf).softmax(-1), values)


@wrong("latent_attention", "FLOPs", "12 queries on 30 latents, 2 heads")
def absorbed_where_the_past_is_long(*arguments):
    return solved("latent_attention", "T * S * (2 * c - d - e) < (S - T) * c * (d + e)", "T < S // 2")(*arguments)


@wrong("latent_attention", "values", "3 queries on 3 latents, 2 heads")
def hidden_by_a_billion(*arguments):
    return solved("latent_attention", "-math.inf", "-1e9")(*arguments)


@wrong("latent_attention", "values", "has dtype float32")
def latents_in_float32(q, rows, up, r):
    return solved("latent_attention")(q.float(), rows.float(), up.float(), r)


# divided_attention


@wrong("divided_attention", "heads", "nothing (None)")
def divides_nothing(*arguments):
    pass


@wrong("divided_attention", "heads", "6 KV heads on 4 ranks")
def kv_heads_are_rounded_down(*arguments):
    return solved("divided_attention", "max(1, -(-kv_heads // ranks))", "max(1, kv_heads // ranks)")(*arguments)


@wrong("divided_attention", "choice", "the better way just fits")
def what_just_fits_does_not(*arguments):
    return solved("divided_attention", "by_requests) > memory", "by_requests) >= memory")(*arguments)


@wrong("divided_attention", "own work", "tinydist.attention")
def asks_the_library(*arguments):
    latent_bytes_per_token(1)
    return solved("divided_attention")(*arguments)


@wrong("divided_attention", "choice", "both read as much")
def requests_where_it_does_not_matter(*arguments):
    found = solved("divided_attention")(*arguments)
    same = found["heads"] == found["requests"]
    return found | {"choice": "requests"} if same else found


# read_scores


@wrong("read_scores", "mean", "nothing (None)")
def reads_nothing(studies, most):
    pass


@wrong("read_scores", "worst", "one variant, two tests")
def losses_are_positive(studies, most):
    found = solved("read_scores")(studies, most)
    return found | {"worst": [-each for each in found["worst"]]}


@wrong("read_scores", "choice", "None loses little enough, and yet one is chosen")
def the_least_cache(studies, most):
    found = solved("read_scores")(studies, most)
    return found | {"choice": min((left, name) for name, left, *_ in studies)[1]}


@wrong("read_scores", "choice", "nor the best mean")
def the_best_mean(studies, most):
    found = solved("read_scores")(studies, most)
    enough = [at for at, loss in enumerate(found["worst"]) if loss >= -most]
    best = max(enough, key=lambda at: found["mean"][at], default=None)
    return found | {"choice": "multi-head" if best is None else studies[best][0]}
