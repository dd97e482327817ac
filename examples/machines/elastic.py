"""Training on as many ranks as torchrun has found; each time it starts them anew, they go on from the checkpoint.

    torchrun --nnodes 1:2 --max-restarts 3 ... examples/machines/elastic.py RUN --steps 1000 --save-every 50

RUN is a folder that all machines see. Its ``history`` has a line for each start, and for each step of rank 0.
"""

import json
import os
import sys
from pathlib import Path

from tinydist.training.command import main


def begin(run, words):
    ranks, history = int(os.environ["WORLD_SIZE"]), run / "history"
    if os.environ["RANK"] == "0":
        with open(history, "a") as file:
            file.write(json.dumps({"ranks": ranks, "restart": int(os.environ["TORCHELASTIC_RESTART_COUNT"])}) + "\n")
    return main(["--mesh", f"dp={ranks}", "--folder", str(run / "checkpoint"), "--history", str(history), *words])


if __name__ == "__main__":
    sys.exit(begin(Path(sys.argv[1]), sys.argv[2:]))
