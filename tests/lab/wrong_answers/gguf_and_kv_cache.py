"""Wrong answers to the exercises of 21b_gguf_and_kv_cache: each with the property that rejects it, and what it is
told."""

from lab.registered import collection, solved

WRONG_ANSWERS, wrong = collection()


@wrong("choose_formats", "values", "")
def the_smallest(weights, per_token, context, memory, bandwidth, weight_formats, cache_formats):
    return "Q4_0", "Q4_0", bandwidth / ((weights + per_token * context) * 4.5 / 8)


@wrong("rows_for_llama_cpp", "values", "the scores of queries and keys")
def as_they_came(query, key, value, heads, kv_heads):
    """Right for the first token, and where a head is one pair."""
    return query, key, value


@wrong("rows_for_llama_cpp", "runs", "(query, key, value)")
def one_weight(query, key, value, heads, kv_heads):
    return solved("rows_for_llama_cpp")(query, key, value, heads, kv_heads)[0]


@wrong("rows_for_llama_cpp", "values", "query")
def in_the_weights_given(query, key, value, heads, kv_heads):
    found = solved("rows_for_llama_cpp")(query, key, value, heads, kv_heads)
    query.copy_(found[0])
    return query, *found[1:]


@wrong("rows_for_llama_cpp", "values", "grouped")
def key_as_one_head_where_grouped(query, key, value, heads, kv_heads):
    """Right wherever there are as many heads of both."""
    if heads == kv_heads:
        return solved("rows_for_llama_cpp")(query, key, value, heads, kv_heads)
    return solved("rows_for_llama_cpp")(query, key, value, heads, 1)
