"""``launch``: run one function on N ranks, on any backend. Its dependencies are imported on first use."""

from functools import cached_property

from ..console.progress_message import progress_message
from ..hardware import find_cluster
from ..simulator.call_sites import learners_traceback
from .options import check_program, check_room, checked, under_torchrun

TWICE = "initialize the default process group twice"  # what torch says to a program that makes its own


class Run:
    """The result of a launch; for simulated ranks with traffic, memory and virtual time, on any cluster."""

    def __init__(self, results, backend, record=None, cluster=None, window=None, whole=None):
        self.results = results  # what fn returned, by rank
        self.backend = backend
        self.record, self.cluster = record, cluster
        self.window, self.whole = window, whole  # (begin, end), if it is a part of a run; and that, on the same cluster

    def __repr__(self):
        return f"<{len(self.results)} {self.backend} ranks ran>"

    @cached_property
    def trace(self):
        """The ``Trace``: all events, in virtual time."""
        if self.record is None:
            raise RuntimeError("this run was not observed: it ran on processes, or was launched with observe=False")
        from ..tracing.replay import replay

        whole = self.whole.trace if self.whole else replay(self.record, self.cluster)
        return whole if self.window is None else whole.between(*self.window)

    @property
    def replaced(self):
        """With ``gpus=True``: what the program asked of a GPU, and what it got instead."""
        return self.record.replaced if self.record else {}

    @property
    def seconds(self):
        """Virtual time of the slowest rank, in seconds."""
        return self.trace.seconds

    @property
    def traffic(self):
        """Bytes sent, [source][destination]. A notebook draws it."""
        return self.trace.traffic

    @property
    def memory(self):
        """Memory of each rank: ``peak``, ``at_peak`` by purpose, ``over_time()``; ``at(time_point)``, ``peak_between``,
        ``series``, by purpose and by whose it is. A notebook draws the fullest rank."""
        if self.record is not None and not self.record.operators:
            raise RuntimeError('this run was launched with observe="communication": memory was not recorded')
        return self.trace.memory

    def on(self, cluster):
        """The same run on another cluster: virtual time is recomputed, the program does not run again."""
        return Run(self.results, self.backend, self.record, find_cluster(cluster), self.window)

    def between(self, begin, end=None):
        """Time, traffic and memory of a part of it, such as one step: ``run.between("begin", "end")``, a Run.

        Time points are seconds, or names of marks and regions; ("step", 2) is the third of that name. ``end=None``: the
        whole region ``begin``. Each rank takes part with what it did between its own two time points, in its own order.
        Time starts at the earliest begin of all and ends at the latest end. Bytes count where their sender has issued
        them in between; a transfer that is still in flight at the end is included completely.
        """
        if self.window is not None:
            raise ValueError(f"between: this is already a window of a run, {self.window}: ask the whole run")
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
    gpus=False,
    values=None,
    **unknown,
):
    """Run ``fn(*args)`` on ``ranks`` ranks; ``run.results[rank]`` is what it returned there.

    ``fn`` is an ordinary torch.distributed program: the default process group exists when it starts and is gone when
    it ends. Pass keyword arguments with ``launch(functools.partial(fn, steps=10), ranks)``. ``backend`` selects where
    the ranks run:

    - ``"simulated"``: threads of this process, one at a time, in the same order every time;
    - ``"gloo"``: processes on this machine;
    - ``"nccl"``: processes with a GPU each.

    The environment variable TINYDIST_BACKEND replaces the default, "simulated". Under ``torchrun`` (RANK and WORLD_SIZE
    are set) launch starts nothing: this process joins the job as its rank, ``ranks`` is the job's, and "simulated"
    becomes "nccl" where there are GPUs and "gloo" elsewhere.

    seed:      seeds the random generators of every rank.
    timeout:   seconds. Processes: for the whole call, including their start (None: no limit). Simulated ranks: how
               long one rank may block the others, either idle or computing without communication; the latter is CPU
               time (None: 60 s idle, no limit for computing). Under torchrun: the timeout of
               ``init_process_group`` (None: torch's default); if the program calls that itself, it sets its own.
    init:      False for a program that calls ``init_process_group`` itself.
    observe:   record operators, memory and communication, for ``run.trace`` and what follows from it;
               "communication", that alone, which is several times as fast. Processes are never observed.

    Simulated ranks only. With an explicit ``backend="gloo"`` or ``"nccl"`` these are an error; if the backend is
    selected by TINYDIST_BACKEND or torchrun they are ignored, so that one script runs on all backends:

    cluster:   a ``hardware.Cluster`` or its name ("H100 pod"), which determines virtual time and the placement of ranks
               on nodes (LOCAL_RANK). None: nodes of 8 A100s.
    schedule:  "fifo", or "shuffle" for a random legal interleaving, reproducible by ``seed``.
    compute:   "modeled", or "measured": operators take their measured CPU time, which varies from run to run.
    fake:      tensors have shapes but no data, so they take no memory.
    only:      with ``fake``, the ranks to run; the others are taken to do the same, and return None.

    per_rank:  global state of libraries that each rank needs separately, as "module:Class.name"; each rank starts with
               a copy. The global state of torch, Accelerate, DeepSpeed, transformers and picotron is known.

    gpus:      the program sees cuda devices, those of ``cluster``, each with its memory (gpus/): programs that are
               written for GPUs run as they are, on CPU tensors. ``run.replaced`` says what they got in place of what
               they asked for. With ``fake``, what is on a GPU has no data, and what is on the host has.
    values:    with ``gpus`` and ``fake``: {name: number}, what the program reads of a GPU on lines with that name.

    Raises what the first failing rank raised, with the rank in a note; ``RuntimeError`` where that is
    KeyboardInterrupt, GeneratorExit or sys.exit with an error (sys.exit(0) returns None); ``TimeoutError`` and
    ``WorkerDied`` on processes; ``DeadlockError``, ``MismatchError`` and ``StuckError`` on simulated ranks;
    ``ValueError`` for invalid options (options.py has the rule of each), also for more ranks than there are
    threads and memory for; ``TypeError`` for a program that cannot be launched. KeyboardInterrupt has a note of where
    the ranks were. Simulated ranks that end well are followed by a ``RuntimeWarning`` if they leave calls that were
    never completed.

    However a run ends, all ranks have exited, except one that is blocked in native code, which exits when that returns;
    the kernel's state is restored, and the next launch works.
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
            gpus=gpus,
            values=values,
        )
        with progress_message("loading torch"):
            from . import backends
        if under_torchrun():
            return Run(*backends.join(fn, args, asked))
        check_room(asked)
        return Run(*(backends.simulate if asked.backend == "simulated" else backends.run_processes)(fn, args, asked))
    except BaseException as error:
        if isinstance(error, ValueError) and TWICE in str(error):
            error.add_note("launch has made the default process group already: init=False leaves it to the program")
        error.__traceback__ = learners_traceback(error)
        raise
