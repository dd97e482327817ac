"""Handles of asynchronous communication: torch.distributed's Work, and its future, which DDP uses."""

from datetime import timedelta

from torch.distributed import Work
from torch.futures import Future

from ..torch_internals import before_backward_ends, in_backward, native_code_will_wait

NO_TIME = timedelta()


class SimulatedWork(Work):
    """Waits for ``event``; holds the tensors that the call writes, and until then those that it reads."""

    def __init__(self, event, simulation, tensors, inputs=(), timeout=None):
        super().__init__()
        self.timeout = timeout  # seconds
        self.event, self.simulation, self.tensors, self.inputs = event, simulation, tensors, inputs
        self.future = None

    def wait(self, timeout=None):
        self.simulation.wait(self.event, seconds(timeout) or self.timeout)
        self.inputs = ()
        # Completed here, by the rank that owns it, so that callbacks run as that rank; and let go, since it knows this.
        future, self.future = self.future, None
        if future:
            future.set_result(self.tensors)
        return True

    synchronize = block_current_stream = wait

    def is_completed(self):
        if not self.event.done:
            self.simulation.scheduler.pause()
        return self.event.done

    def is_success(self):
        return self.event.done

    def exception(self):
        return None

    def result(self):
        self.wait()
        return self.tensors

    def source_rank(self):
        return self.event.peer

    _source_rank = source_rank

    def get_future(self):
        """In backward, a future that is done before backward ends, so that communication and backward overlap.

        torch's C++ code (DDP) waits for futures natively, which would block all ranks. So where it is going to, the
        wait is done here, first: at the end of backward, or at once where no graph is run.
        """
        future = self.future
        if future is None:
            future = self.future = RankFuture(self)
            if in_backward():
                before_backward_ends(self.wait)
            elif self.event.done or native_code_will_wait():
                self.wait()
        return future


class RankFuture(Future):
    """A future whose wait lets other ranks run."""

    def __init__(self, work):
        super().__init__()
        self.work = work

    def wait(self):
        self.work.wait()
        return super().wait()

    def value(self):
        self.work.wait()
        return super().value()

    def then(self, callback):
        following = RankFuture(self.work)

        def run(done):
            try:
                following.set_result(callback(done))
            except Exception as error:
                following.set_exception(error)

        self.add_done_callback(run)
        return following


class Works(Work):
    """Several Work handles, waited for together."""

    def __init__(self, works):
        super().__init__()
        self.works = works

    def wait(self, timeout=None):
        return all([work.wait(timeout) for work in self.works])

    def is_completed(self):
        return all([work.is_completed() for work in self.works])


def seconds(timeout):
    """Of a timedelta; None where it is none, or not above 0, as torch's own default is."""
    return timeout.total_seconds() if timeout and timeout > NO_TIME else None


class Done(Work):
    """What a call returns that was waited for inside."""

    def wait(self, timeout=None):
        return True

    def is_completed(self):
        return True

    is_success = synchronize = wait


DONE = Done()
