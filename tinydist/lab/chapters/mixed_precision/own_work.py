"""What may not be used here: neither the library's precision, nor torch's scaler, nor what the lab measures."""

from ...own_work import calls_none_of

SOLVED = {
    "tinydist.precision": "tinydist.precision",
    "tinydist.lab.chapters": "tinydist.lab.chapters",
    "torch.amp.grad_scaler": "torch's GradScaler",
}


def own_work(watched):
    return calls_none_of(watched, SOLVED, "here it is for you to do")
