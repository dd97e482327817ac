"""The trace: events in order, and a file that holds to the rules of the Chrome-trace format.

The rules are those of the format's description (Trace Event Format, Google 2016) and of what Perfetto reads: times in
microseconds, taken as whole nanoseconds; complete events (X) of a thread nest or do not overlap; the ends of a flow (s,
f) lie within a slice of their thread.
"""

import gc
import json
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from random_programs import RANKS, programs, run_steps

import tinydist
from tinydist.tracing.trace import uncollected

FIELDS = {  # that an event of a phase must have, and may have besides
    "X": ({"ph", "name", "cat", "ts", "dur", "pid", "tid"}, {"args"}),
    "M": ({"ph", "name", "pid", "tid", "args"}, set()),
    "s": ({"ph", "name", "cat", "id", "ts", "pid", "tid"}, set()),
    "f": ({"ph", "name", "cat", "id", "ts", "pid", "tid"}, {"bp"}),
    "i": ({"ph", "name", "cat", "s", "ts", "pid", "tid"}, set()),
}
METADATA = {"process_name", "thread_name"}


def check(text):
    """Every rule of the format that our files can break. Returns the events by phase."""
    trace = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert set(trace) == {"traceEvents", "displayTimeUnit"} and trace["displayTimeUnit"] in ("ms", "ns")
    events = defaultdict(list)
    for event in trace["traceEvents"]:
        needed, allowed = FIELDS[event["ph"]]
        assert needed <= set(event) <= needed | allowed, event
        assert type(event["pid"]) is int and type(event["tid"]) is int and isinstance(event["name"], str)
        for field in {"ts", "dur"} & set(event):
            assert isinstance(event[field], int | float) and event[field] >= 0
        events[event["ph"]].append(event)
    check_labels(events)
    slices = check_slices(events)
    check_flows(events, slices)
    return events


def check_labels(events):
    labels = Counter((event["name"], event["pid"], event["tid"]) for event in events["M"])
    assert all(count == 1 for count in labels.values()), "a label is given once"
    assert all(event["name"] in METADATA and set(event["args"]) == {"name"} for event in events["M"])
    threads = {(event["pid"], event["tid"]) for event in events["X"]}
    assert {(p, t) for name, p, t in labels if name == "thread_name"} == threads
    assert sorted(p for name, p, _ in labels if name == "process_name") == sorted({p for p, _ in threads})


def nanoseconds(event):
    """From and to, as Perfetto reads them."""
    start = round(event["ts"] * 1000)
    return start, start + round(event.get("dur", 0) * 1000)


def check_slices(events):
    slices = defaultdict(list)
    for event in events["X"]:
        slices[event["pid"], event["tid"]].append(nanoseconds(event))
    for each in slices.values():
        for (_, end), (start, _) in pairwise(sorted(each)):
            assert end <= start, "slices of a thread overlap"  # ours do not even nest
    return slices


def check_flows(events, slices):
    begins, ends = ({event["id"]: event for event in events[phase]} for phase in "sf")
    assert len(begins) == len(events["s"]) and len(ends) == len(events["f"]), "an id is used twice"
    assert set(begins) == set(ends), "a flow has two ends"
    for number, begin in begins.items():
        end = ends[number]
        assert (begin["name"], begin["cat"]) == (end["name"], end["cat"])
        assert begin["ts"] < end["ts"] and end["bp"] == "e"
        for flow in (begin, end):
            at, _ = nanoseconds(flow)
            assert any(start <= at <= stop for start, stop in slices[flow["pid"], flow["tid"]])


def saved(run, path):
    run.trace.save(path)
    return path.read_text()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("traces") / "run.json"


def exchange():
    x, rank = torch.ones(1000), dist.get_rank()
    dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
    work = dist.all_reduce(x, async_op=True)
    torch.ones(1000).mul_(2)
    work.wait()


def test_the_file_of_a_program(path):
    run = tinydist.launch(exchange, 2)
    events = check(saved(run, path))
    threads = {(e["pid"], e["args"]["name"]) for e in events["M"] if e["name"] == "thread_name"}
    assert threads == {(rank, stream) for rank in (0, 1) for stream in ("compute", "0 to 1", "ranks 0-1")}
    assert [e["args"]["name"] for e in events["M"] if e["name"] == "process_name"] == ["rank 0", "rank 1"]
    (begin,), (end,) = ([flow for flow in events[phase] if flow["name"] == "message"] for phase in "sf")
    assert (begin["pid"], end["pid"]) == (0, 1)
    waits = [nanoseconds(event)[1] for event in events["X"] if event["name"] == "wait"]
    assert sorted(nanoseconds(flow)[0] for flow in events["f"] if flow["name"] == "wait") == sorted(waits)
    for event in events["X"]:
        assert event["cat"] == ("compute" if event["name"] in ("ones", "mul_") else "communication")
        if event["cat"] == "communication":
            assert event["args"].pop("issued", 0) <= event["ts"]
            assert event["args"].pop("worked", 0) >= 0
            assert event["args"] == {"bytes": 4000}
    assert max(nanoseconds(event)[1] for event in events["X"]) == round(run.seconds * 1e9)


def test_the_file_has_the_names_that_the_program_gives(path):
    def program():
        layer = torch.nn.Linear(4, 4)
        tinydist.mark("begin")
        with tinydist.region("F0"):
            layer(torch.ones(4)).sum().backward()
        dist.all_reduce(layer.weight.grad)

    events = check(saved(tinydist.launch(program, 2), path))
    assert [(event["name"], event["pid"]) for event in events["i"]] == [("begin", 0), ("begin", 1)]
    named = {event["name"]: event["args"] for event in events["X"]}
    assert named["addmm"] == {"phase": "forward", "regions": "F0"}
    sent = named["all_reduce weight"]
    assert sent == {"bytes": 64, "what": "weight", "issued": sent["issued"], "worked": sent["worked"]}


def test_an_all_to_all_says_its_bytes_of_all_ranks(path):
    run = tinydist.launch(lambda: dist.all_to_all_single(torch.ones(8), torch.ones(8)), 4)
    sizes = [e["args"] for e in check(saved(run, path))["X"] if e["name"] == "all_to_all"]
    assert [each["bytes"] for each in sizes] == [4 * 32] * 4


def test_the_file_of_a_run_in_which_nothing_happens(path):
    assert not any(check(saved(tinydist.launch(lambda: None, 2), path)).values())


def test_messages_that_take_no_time_have_no_arrow(path):
    from tinydist.hardware import Cluster, Link

    cluster = Cluster("A100 80GB", 2, Link("at once", 0.0, 1e30))
    check(saved(tinydist.launch(exchange, 2, cluster=cluster), path))


@given(steps=programs)
def test_the_file_of_any_program(path, steps):
    run = tinydist.launch(run_steps, RANKS, steps)
    check(saved(run, path))
    check(saved(run.on("PCIe box"), path))


@given(programs)
def test_events_are_in_order_and_waits_end_with_what_they_wait_for(steps):
    trace = tinydist.launch(run_steps, RANKS, steps).trace
    assert [(e.rank, e.start) for e in trace.events] == sorted((e.rank, e.start) for e in trace.events)
    ends = {event.transfer: event.end for event in trace.events if event.stream != "compute"}
    for event in trace.events:
        assert 0 <= event.start <= event.end <= trace.seconds
        if event.name == "wait":
            assert event.end == ends[event.transfer]
        if event.transfer:
            assert event.rank in event.transfer.ranks


def test_events_of_a_rank_and_of_a_stream():
    trace = tinydist.launch(exchange, 2).trace
    assert [event.name for event in trace.of(1)] == ["ones", "message", "wait", "ones", "all_reduce", "mul_", "wait"]
    assert [event.name for event in trace.of(1, "ranks 0-1")] == ["all_reduce"]
    assert {event.rank for event in trace.of(0)} == {0}


@pytest.mark.parametrize("before", [True, False])
def test_garbage_collection_is_as_it_was_before_also_after_an_error(before):
    enabled = gc.isenabled()
    (gc.enable if before else gc.disable)()
    try:
        with pytest.raises(ValueError), uncollected():
            assert not gc.isenabled()
            raise ValueError
        assert gc.isenabled() == before
    finally:
        (gc.enable if enabled else gc.disable)()


def transfers_and_products():
    """A transfer that nothing lies beside, and one that waits behind a long product."""
    x, matrix = torch.ones(1 << 16), torch.ones(512, 512)
    dist.all_reduce(x)
    tinydist.mark("alone")
    work = dist.all_reduce(x, async_op=True)
    for _ in range(40):
        matrix = matrix @ matrix
    work.wait()
    tinydist.mark("end")


def test_busy_seconds_and_the_part_of_transfers_behind_compute():
    run = tinydist.launch(transfers_and_products, 4, cluster="PCIe box", backend="simulated")
    busy = run.trace.busy(rank=1)
    assert set(busy) == {"compute", "all_reduce"}
    moved = [event for event in run.trace.of(1) if event.name == "all_reduce" and event.stream != "compute"]
    assert busy["all_reduce"] == sum(event.end - event.start for event in moved)
    assert run.trace.hidden("all_reduce", rank=1) == pytest.approx(0.5, abs=0.05)  # one of two
    assert run.between("alone", "end").trace.hidden("all_reduce") == pytest.approx(1, abs=0.05)
    with pytest.raises(ValueError, match="rank 0 has no all_gather"):
        run.trace.hidden("all_gather")
