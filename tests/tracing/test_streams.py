"""Streams of a program on virtual time: what a GPU would overlap overlaps, and what a CPU would not does not."""

import torch
import torch.distributed as dist
from tracing.simple_cluster import LAYER_BYTES, PRODUCT, RANKS, ROWS, WIDTH, WIRE, cluster, exactly

import tinydist
from tinydist.hardware import costs


def test_a_collective_on_a_stream_of_its_own_runs_beside_what_follows():
    def program():
        aside, x, y = torch.cpu.Stream(), torch.ones(WIDTH, WIDTH), torch.ones(ROWS, WIDTH)
        aside.wait_stream(torch.cpu.current_stream())
        with torch.cpu.stream(aside):
            dist.all_reduce(x)  # waits on this stream
            done = aside.record_event()
        y @ torch.ones(WIDTH, WIDTH)
        torch.cpu.current_stream().wait_event(done)
        y @ x

    run = tinydist.launch(program, RANKS, cluster=cluster())
    sent = costs.ring_all_reduce(LAYER_BYTES, RANKS, WIRE)
    assert run.seconds == exactly(max(PRODUCT, sent) + PRODUCT)
    assert run.on(cluster(runs_ahead=False)).seconds == exactly(sent + 2 * PRODUCT)


def test_an_event_is_what_its_stream_had_when_it_was_recorded():
    def program(early):
        aside, y = torch.cpu.Stream(), torch.ones(ROWS, WIDTH)
        event = torch.cpu.Event()
        with torch.cpu.stream(aside):
            if early:
                event.record()
            y @ torch.ones(WIDTH, WIDTH)
            y @ torch.ones(WIDTH, WIDTH)
            if not early:
                event.record()
        event.wait()
        y @ torch.ones(WIDTH, WIDTH)

    early, late = (tinydist.launch(program, 1, each, cluster=cluster()).seconds for each in (True, False))
    assert early == exactly(2 * PRODUCT) and late == exactly(3 * PRODUCT)


def test_an_event_that_was_never_recorded_is_not_waited_for():
    def program():
        torch.cpu.Stream().wait_event(torch.cpu.Event())
        with torch.cpu.stream(None):
            torch.ones(ROWS, WIDTH) @ torch.ones(WIDTH, WIDTH)

    assert tinydist.launch(program, 1, cluster=cluster()).seconds == exactly(PRODUCT)


def test_torch_has_its_own_again():
    before = torch.cpu.Stream, torch.cpu.Event, torch.cpu.stream, torch.accelerator.current_stream
    tinydist.launch(lambda: torch.cpu.Stream(), 2)
    assert (torch.cpu.Stream, torch.cpu.Event, torch.cpu.stream, torch.accelerator.current_stream) == before
    assert "tinydist" not in torch.cpu.Stream.__module__
