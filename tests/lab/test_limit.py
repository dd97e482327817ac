"""A loop that computes without end is stopped, also one that catches everything."""

import threading
import time

import pytest

from tinydist.lab.limit import TooLong, limit


def test_a_loop_without_end_is_stopped():
    with pytest.raises(TooLong):
        with limit(0.1) as stoppable:
            stoppable()
            while True:
                pass


def test_in_a_thread_that_catches_what_it_can():
    caught = []

    def program(stoppable):
        stoppable()
        while len(caught) < 2:
            try:
                while True:
                    pass
            except:  # noqa: E722
                caught.append(1)

    with limit(0.1) as stoppable:
        thread = threading.Thread(target=program, args=[stoppable])
        thread.start()
        thread.join(timeout=20)
    assert len(caught) == 2 and not thread.is_alive()


def test_what_ends_in_time_is_left_alone():
    before = threading.active_count()
    with limit(30.0) as stoppable:
        stoppable()
        busy_until = time.process_time() + 0.02
        while time.process_time() < busy_until:
            pass
    assert threading.active_count() == before
