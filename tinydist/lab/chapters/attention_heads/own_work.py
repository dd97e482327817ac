"""What may not be called here: finished attention, the library's or torch's."""

from ...own_work import calls_none_of

SOLVED = {home: home for home in ("tinydist.attention", "tinydist.lab.chapters", "torch.nn.attention")}


def own_work(watched, lent=()):
    return calls_none_of(watched, SOLVED, "here it is for you to build", lent)
