"""Streams, events and nvtx ranges are those of the trace."""

import torch
from gpus.on_gpus import on_gpus, refusal, where

import tinydist


def product(N=1000):
    return torch.ones(N, N, device="cuda") @ torch.ones(N, N, device="cuda")


def test_events_are_in_virtual_time():
    def program():
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        product()
        end.record()
        torch.cuda.synchronize()
        end.synchronize()
        assert begin.query() and refusal(begin.elapsed_time, torch.cuda.Event()).startswith(
            "Both events must be created"
        )
        return begin.elapsed_time(end)

    first, again = on_gpus(program), on_gpus(program)
    assert first == again > 0
    assert on_gpus(program, cluster="H100 pod") < first


def test_streams():
    def program():
        side, main = torch.cuda.Stream(), torch.cuda.current_stream()
        with torch.cuda.stream(side):
            assert torch.cuda.current_stream() is side
            x = product()
        main.wait_stream(side)
        x.record_stream(main)
        side.wait_event(main.record_event())
        with torch.cuda.stream(None):
            assert torch.cuda.current_stream() is main is torch.cuda.default_stream()
        return str(main.device), str(torch.cuda.Stream(1).device), where(x), side.query()

    assert on_gpus(program) == ("cuda:0", "cuda:1", "cuda:0", True)


def test_products_on_two_streams_are_told_apart():
    def program(side):
        with torch.cuda.stream(torch.cuda.Stream() if side else None):
            product()

    assert tinydist.launch(program, 1, True, gpus=True).seconds > 0


def test_nvtx_ranges_are_regions():
    def program():
        torch.cuda.nvtx.range_push("outer")
        with torch.cuda.nvtx.range("step {}", 3):
            product()
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.mark("here")

    trace = tinydist.launch(program, 1, gpus=True).trace
    (matmul,) = [event for event in trace.events if event.name == "mm"]
    assert matmul.scope.regions == ("outer", "step 3")
