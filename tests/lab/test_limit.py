"""A loop that computes without end is stopped, also one that catches everything."""

import threading
import time

import pytest

from tinydist.lab.limit import TooLong, limit


def test_a_loop_without_end_is_stopped():
    with pytest.raises(TooLong):
        with limit(0.1) as computing:
            computing.start()
            while True:
                pass


def test_in_a_thread_that_catches_what_it_can():
    caught = []

    def program(computing):
        computing.start()
        while len(caught) < 2:
            try:
                while True:
                    pass
            except:  # noqa: E722
                caught.append(1)

    with limit(0.1) as computing:
        thread = threading.Thread(target=program, args=[computing])
        thread.start()
        thread.join(timeout=20)
    assert len(caught) == 2 and not thread.is_alive()


def test_what_ends_in_time_is_left_alone():
    before = threading.active_count()
    with limit(30.0) as computing:
        computing.start()
        busy_until = time.process_time() + 0.02
        while time.process_time() < busy_until:
            pass
    assert threading.active_count() == before
