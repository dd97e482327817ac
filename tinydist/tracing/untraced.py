"""What is done for each operator is not shown to debuggers, nor to others that trace: they would see little else."""

import functools
import sys


def untraced(function):
    """``function(*arguments)``, in which ``sys.settrace`` sees nothing."""

    @functools.wraps(function)
    def call(*arguments):
        trace = sys.gettrace()
        if trace is None:
            return function(*arguments)
        sys.settrace(None)
        try:
            return function(*arguments)
        finally:
            sys.settrace(trace)

    return call
