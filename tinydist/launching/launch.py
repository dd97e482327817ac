"""The front door: run one function on N ranks of any world. What it is made of is loaded when it is first used."""

from functools import cached_property

from ..console.waiting import waiting_for
from ..hardware import find_cluster
from ..simulator.call_sites import learners_traceback
from .options import check_program, check_room, checked

TWICE = "initialize the default process group twice"  # what torch says to a program that makes its own


class Run:
    """What came of a launch. Of simulated ranks it knows more: traffic, memory and time, on any cluster."""

    def __init__(self, results, backend, record=None, cluster=None, window=None, whole=None):
        self.results = results  # what fn returned, by rank
        self.backend = backend
        self.record, self.cluster = record, cluster
        self.window, self.whole = window, whole  # two moments, if it is a part of a run; and that, on the same cluster

    def __repr__(self):
        return f"<{len(self.results)} {self.backend} ranks ran>"

    @cached_property
    def trace(self):
        """What happened when, in virtual time: a ``Trace``."""
        if self.record is None:
            raise RuntimeError("this run was not observed: it ran on processes, or was launched with observe=False")
        from ..tracing.replay import replay

        whole = self.whole.trace if self.whole else replay(self.record, self.cluster)
        return whole if self.window is None else whole.between(*self.window)

    @property
    def seconds(self):
        """Virtual time of the slowest rank."""
        return self.trace.seconds

    @property
    def traffic(self):
        """Bytes sent, [source][destination]. A notebook draws it."""
        return self.trace.traffic

    @property
    def memory(self):
        """What each rank held: ``peak``, ``at_peak`` by purpose, ``over_time()``; ``at(moment)``, ``peak_between``,
        ``series``, by purpose and by whose it is. A notebook draws the fullest rank."""
        if self.record is not None and not self.record.operators:
            raise RuntimeError('this run was launched with observe="communication": what its ranks held is not known')
        return self.trace.memory

    def on(self, cluster):
        """The same run on another cluster: nothing is run again."""
        return Run(self.results, self.backend, self.record, find_cluster(cluster), self.window)

    def between(self, begin, end=None):
        """Time, traffic and memory of a part of it, such as one step: ``run.between("begin", "end")``, a Run.

        Moments are seconds, or names of marks and regions; ("step", 2) is the third of that name. ``end=None``: the
        whole region ``begin``. Each rank takes part with what it did between its own two moments, in its own order.
        Time starts at the earliest begin of all and ends at the latest end. Bytes count where their sender has issued
        them in between; a transfer that is still under way then is there, to its end.
        """
        if self.window is not None:
            raise ValueError(f"between: this is a part of a run already, {self.window}: ask the whole run")
        window = begin, begin if end is None else end
        return Run(self.results, self.backend, self.record, self.cluster, window, whole=self)


def launch(
    fn,
    ranks=4,
    *args,
    backend=None,
    cluster=None,
    seed=0,
    schedule="fifo",
    timeout=None,
    init=True,
    observe=True,
    compute="modeled",
    fake=False,
    only=None,
    per_rank=(),
    **unknown,
):
    """Run ``fn(*args)`` on ``ranks`` ranks; ``run.results[rank]`` is what it returned there.

    ``fn`` is an ordinary torch.distributed program: the default process group exists when it starts and is gone when
    it ends. Its keyword arguments go with it: ``launch(functools.partial(fn, steps=10), ranks)``. ``backend`` is where
    the ranks live:

    - ``"simulated"``: threads of this process, one at a time, in the same order every time;
    - ``"gloo"``: processes on this machine;
    - ``"nccl"``: processes with a GPU each.

    The environment variable TINYDIST_BACKEND replaces the default, "simulated". Under ``torchrun`` (RANK and WORLD_SIZE
    are set) launch starts nothing: this process joins the job as the rank that it is, ``ranks`` is the job's, and
    "simulated" becomes "nccl" where there are GPUs and "gloo" elsewhere.

    seed:      every rank's random generators start from it.
    timeout:   seconds. For processes, of the whole call, their start included (None: no limit). For simulated ranks,
               how long one may keep the others from running: doing nothing, or computing without communicating, which
               counts on the processor's clock (None: 60 for doing nothing, no limit for computing). Under torchrun, how
               long a rank waits for the others in one operation, as in ``init_process_group`` (None: torch's default);
               where the program calls that itself, it says so there.
    init:      False for a program that calls ``init_process_group`` itself.
    observe:   record operators, memory and communication, for ``run.trace`` and what follows from it;
               "communication", that alone, which is several times as fast. Processes are never observed.

    Of simulated ranks alone. Where the code names the backend "gloo" or "nccl" they are an error; where the world was
    chosen from outside, by TINYDIST_BACKEND or torchrun, they are ignored, so that one script serves all worlds:

    cluster:   a ``hardware.Cluster``, or the name of one ("H100 pod"), for virtual time and the ranks' places, as in
               LOCAL_RANK. None: nodes of 8 A100s.
    schedule:  "fifo", or "shuffle" for another legal order, chosen and replayed by ``seed``.
    compute:   "modeled", or "measured": operators take the processor's own time, and times differ from run to run.
    fake:      tensors have shapes but no data, so they take no memory.
    only:      with ``fake``, the ranks to run; the others are taken to do the same, and return None.

    per_rank:  what a library keeps once in a process and each rank must have for itself, as "module:Class.name"; a rank
               begins with a copy of it. What torch, Accelerate, DeepSpeed, transformers and picotron keep is known.

    Raises what the first failing rank raised, with the rank in a note; ``RuntimeError`` where that is
    KeyboardInterrupt, GeneratorExit or sys.exit with an error (sys.exit(0) returns None); ``TimeoutError`` and
    ``WorkerDied`` on processes; ``DeadlockError``, ``MismatchError`` and ``StuckError`` on simulated ranks;
    ``ValueError`` for options that make no world (options.py has the rule of each), also for more ranks than there are
    threads and memory for; ``TypeError`` for a program that cannot be launched. KeyboardInterrupt has a note of where
    the ranks were. Simulated ranks that end well are followed by a ``RuntimeWarning`` if they leave calls that were
    never completed.

    However a run ends, all ranks are gone but one that native code keeps, which ends when it returns; the kernel is as
    it was, and the next launch works.
    """
    try:
        check_program(fn, (ranks, *args), unknown)
        asked = checked(
            ranks=ranks,
            backend=backend,
            cluster=cluster,
            seed=seed,
            schedule=schedule,
            timeout=timeout,
            init=init,
            observe=observe,
            compute=compute,
            fake=fake,
            only=only,
            per_rank=per_rank,
        )
        with waiting_for("loading torch"):
            from . import worlds
        if worlds.under_torchrun():
            return Run(*worlds.join(fn, args, asked))
        check_room(asked)
        return Run(*(worlds.simulate if asked.backend == "simulated" else worlds.run_processes)(fn, args, asked))
    except BaseException as error:
        if isinstance(error, ValueError) and TWICE in str(error):
            error.add_note("launch has made the default process group already: init=False leaves it to the program")
        error.__traceback__ = learners_traceback(error)
        raise
