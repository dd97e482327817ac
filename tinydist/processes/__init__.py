"""Multi-process backend: worker processes on this machine that communicate with gloo or nccl.

    kernel                                  a worker for each rank
      | run: function, environment -----------> |  makes the process group, runs the function
      | <-------------------- line: it printed  |
      | <------------------ returned or raised  |
      | leave, when all have returned --------> |  takes the process group down
      | <--------------------------------- left |

Commands go to a worker's stdin, replies come from its stdout. A worker is a fresh Python interpreter that never imports
the notebook or script that started it: functions are pickled by value. It is reused by later calls, which then start in
milliseconds, and ends with the kernel, however that ends, because its stdin is closed.
"""

from .call import WorkerDied, run

__all__ = ["WorkerDied", "run"]
