"""Real ranks from a notebook: processes of this machine, with gloo or nccl between them.

    kernel                                  a worker for each rank
      | run: function, environment -----------> |  makes the process group, runs the function
      | <-------------------- line: it printed  |
      | <------------------ returned or raised  |
      | leave, when all have returned --------> |  takes the process group down
      | <--------------------------------- left |

Commands go to a worker's stdin, replies come from its stdout. A worker is a fresh Python that never imports
the notebook or script that started it: functions travel by value. It stays for the next call, which so starts
in milliseconds, and ends with the kernel, however that ends: its stdin is closed then.
"""

from .call import WorkerDied, run

__all__ = ["WorkerDied", "run"]
