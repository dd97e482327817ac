"""What may not be called here: finished attention, the library's, torch's or the lab's."""

from ...own_work import calls_none_of

HERE = tuple(f"{__package__}.{module}" for module in ("states", "rows", "columns", "lengths"))
SOLVED = {home: home for home in ("tinydist.attention", "torch.nn.attention", *HERE)}


def own_work(watched):
    return calls_none_of(watched, SOLVED, "here it is for you to do")
