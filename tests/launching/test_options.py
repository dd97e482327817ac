"""What launch takes: each option is held to its rule, and says it."""

import functools
import math

import numpy
import psutil
import pytest
import torch.distributed as dist

import tinydist
from tinydist.hardware import Cluster
from tinydist.launching import options


def train(steps=1, rate=0.1):
    return steps, rate


async def coroutine():
    pass


def generator():
    yield


WRONG = [
    ({"ranks": 0}, "ranks must be an integer >= 1, got 0"),
    ({"ranks": -1}, "ranks must be an integer >= 1, got -1"),
    ({"ranks": 2.5}, r"ranks must be an integer >= 1, got 2\.5"),
    ({"ranks": True}, "ranks must be an integer >= 1, got True"),
    ({"ranks": "2"}, "ranks must be an integer >= 1, got '2'"),
    ({"backend": "mpi"}, "backend must be one of simulated, gloo, nccl, got 'mpi'"),
    ({"backend": ""}, "backend must be one of simulated, gloo, nccl, got ''"),
    ({"schedule": "lifo"}, "schedule must be one of fifo, shuffle, got 'lifo'"),
    ({"compute": None}, "compute must be one of modeled, measured, got None"),
    ({"cluster": 3}, "cluster must be a hardware.Cluster or one of 'laptop', .*'GB200 NVL72', or None, got 3"),
    ({"cluster": "H900"}, "cluster must be a hardware.Cluster or one of .*, got 'H900'"),
    ({"seed": -1}, r"seed must be an integer from 0 to 2\*\*64 - 1, got -1"),
    ({"seed": 2**64}, "seed must be an integer"),
    ({"seed": None}, "seed must be an integer"),
    *(
        ({"timeout": value}, "timeout must be a number of seconds > 0, or None")
        for value in (0, -1, math.nan, math.inf, "3", True)
    ),
    *(({name: 1}, f"{name} must be True or False, got 1") for name in ("init", "fake")),
    *(({"observe": value}, 'observe must be True, False or "communication", got') for value in (1, None, "memory")),
    ({"only": 0, "fake": True}, "only must be a list of ranks, or None, got 0"),
    ({"only": [0]}, r"only must be a subset of ranks 0 to 1, with fake=True, got \[0\]"),
    ({"only": [], "fake": True}, "only must be a subset of ranks 0 to 1"),
    ({"only": [2], "fake": True}, "only must be a subset of ranks 0 to 1"),
]


@pytest.mark.parametrize("given, message", WRONG, ids=str)
def test_an_option_that_breaks_its_rule_is_told_the_rule(given, message):
    with pytest.raises(ValueError, match=f"^launch: {message}"):
        tinydist.launch(train, **({"ranks": 2} | given))


@pytest.mark.parametrize("ranks", [numpy.int64(2), 2])
def test_a_whole_number_is_what_can_be_an_index(ranks):
    run = tinydist.launch(dist.get_rank, ranks, seed=numpy.uint8(3), timeout=numpy.float32(9), only=None)
    assert run.results == [0, 1]


def test_every_option_of_launch_has_a_rule():
    assert list(options.RULES) == [
        name
        for name, each in options.inspect.signature(tinydist.launch).parameters.items()
        if name not in ("fn", "args", "unknown")
    ]


def test_what_says_nothing_of_processes_is_refused_where_the_code_names_them(monkeypatch):
    given = {"cluster": "laptop", "schedule": "shuffle", "compute": "measured", "fake": True, "only": [0]}
    message = "cluster, schedule, compute, fake, only: supported on simulated ranks only, got backend='gloo'"
    with pytest.raises(ValueError, match=message):
        tinydist.launch(train, 2, backend="gloo", **given)
    monkeypatch.setenv("TINYDIST_BACKEND", "gloo")
    asked = (
        dict.fromkeys(options.RULES)
        | {"ranks": 2, "seed": 0, "per_rank": [], "gpus": False}
        | dict.fromkeys(("init", "observe"), True)
    )
    assert options.checked(**(asked | given)).backend == "gloo"  # chosen from outside: one script serves all worlds


# Room


@pytest.mark.parametrize(
    "given, needed",
    [
        ({}, "100,000,000,000,000,000,000 simulated ranks require at least 100,000,000,000,000,000,000 threads"),
        (
            {"backend": "gloo"},
            "100,000,000,000,000,000,000 gloo ranks require at least 100,000,000,000,000,000,000 processes",
        ),
        ({"fake": True, "only": [0, 1]}, "100,000,000,000,000,000,000 simulated ranks require at least 2 threads"),
    ],
)
def test_more_ranks_than_there_is_room_for_are_refused(given, needed):
    with pytest.raises(ValueError, match=rf"launch: {needed} and \S+ GB of memory; available: .* GB$"):
        tinydist.launch(train, 10**20, **given)


def test_the_room_is_what_the_system_states(monkeypatch, tmp_path):
    (tmp_path / "most").write_text("9\n")
    (tmp_path / "max").write_text("max\n")
    monkeypatch.setattr(options, "threads_allowed", options.threads_allowed.__wrapped__)
    monkeypatch.setattr(options, "LITTLE", 0)
    monkeypatch.setattr(options, "LIMITS", {str(tmp_path / "most"): 2, str(tmp_path / "max"): 1, "/not/here": 1})
    assert tinydist.launch(dist.get_rank, 4).results == [0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"5 simulated ranks require at least 5 threads .*; available: 4 threads and "):
        tinydist.launch(train, 5)
    memory = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory._replace(available=3 * options.A_THREAD))
    with pytest.raises(
        ValueError, match=r"4 simulated ranks require at least 4 threads and 0.00056 GB .* and 0.00042 GB$"
    ):
        tinydist.launch(train, 4)


# The program


def test_a_keyword_that_is_no_option_says_how_the_program_gets_it():
    line = r"launch\(functools.partial\(train, rate=0.5\), 2, 10\)"
    with pytest.raises(TypeError, match=rf"launch has no option 'rate'\. To pass arguments to train, write: {line}$"):
        tinydist.launch(train, 2, 10, rate=0.5)
    assert tinydist.launch(functools.partial(train, rate=0.5), 2, 10).results == [(10, 0.5)] * 2  # that very line


def test_a_misspelt_option_is_not_passed_on():
    with pytest.raises(TypeError, match=r"launch has no option 'seeed'\. Did you mean seed\?"):
        tinydist.launch(train, 2, seeed=3)


@pytest.mark.parametrize("program", [coroutine, generator, functools.partial(generator)])
def test_a_program_that_would_not_run_is_refused(program):
    with pytest.raises(
        TypeError, match=r"launch: .* is a coroutine function or generator function, .*; pass a regular function"
    ):
        tinydist.launch(program, 2)


def test_a_program_is_a_function():
    with pytest.raises(TypeError, match="launch: the program must be a function, got 3"):
        tinydist.launch(3)


def test_a_cluster_is_taken_as_it_is():
    mine = Cluster("A100 80GB", 1)
    assert tinydist.launch(train, 1, cluster=mine).cluster is mine
