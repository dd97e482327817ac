"""Questions about notes, asked with the standard library and through LangChain: requests, bytes, retries, time.

    python -m benchmarks.applications --langchain PYTHON [--write]    # --write: into notebooks/data/22_application.csv

PYTHON: of an environment in which `pip install langchain-openai numpy` was run. Both programs (notebooks/application)
run there, against `python -m tinydist serve` of this environment, through a relay that counts (relay.py, beside them).

    requests, head, body, answer     bytes of all questions, as they pass the relay
    retries, after_429               requests that are sent when the first two are refused, and whether it answers then
    times_plain                      the processor's seconds of a question, over those of plain.py: median of five runs
    share                            these seconds, in per cent of what a question takes with the model behind it
    imported                         seconds to import and end, over those of plain.py
    packages                         what is installed besides Python's own
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from benchmarks import csv_rows

FOLDER = Path(__file__).parents[1] / "notebooks" / "application"
FILE = FOLDER.parent / "data" / "22_application.csv"
sys.path.insert(0, str(FOLDER))
QUESTIONS = ["Which call do all ranks of a group make together?", "What is a bubble?", "Who holds optimizer states?"]
PROGRAMS = ["plain.py", "with_langchain.py"]
VERSIONS = "from importlib.metadata import distributions as d; print(*(f'{x.name}=={x.version}' for x in d()))"


@contextmanager
def server(steps):
    """The port of a `python -m tinydist serve`."""
    command = [sys.executable, "-m", "tinydist", "serve", "--port", "0", "--steps", str(steps)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout:
                if "http://" in line:
                    yield int(line.partition("/v1")[0].rpartition(":")[2])
                    break
        finally:
            process.terminate()


def installed(python):
    """All that is installed there, and the versions that matter."""
    listed = subprocess.check_output([python, "-c", VERSIONS], text=True).split()
    named = ("langchain-core", "langchain-openai", "langsmith", "openai", "numpy")
    return listed, " ".join(sorted(each for each in listed if each.startswith(named)))


def ask(python, program, url, question, repeated=0):
    command = [python, program, url, question, str(repeated)]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=300)
    return json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr.strip().splitlines()[-1]}


def measured(python, program, port, repeated):
    from relay import Relay

    with Relay(port) as relay:
        answers = [ask(python, program, relay.url, question) for question in QUESTIONS]
    row = {"program": program, "questions": len(QUESTIONS)} | relay.sent
    row["tokens"] = sum(json.loads(each)["usage"]["total_tokens"] for each in relay.answers)
    row["sources"] = ", ".join(each["source"] for each in answers)
    row["text"] = answers[0]["answer"]
    with Relay(port, busy=2) as relay:
        refused = ask(python, program, relay.url, QUESTIONS[0])
    row |= {"retries": relay.sent["requests"], "after_429": refused.get("error", "answers").partition(" ")[0]}
    with Relay() as relay:
        of_client = [ask(python, program, relay.url, QUESTIONS[0], repeated)["processor"] for _ in range(5)]
    with Relay(port) as relay:
        whole = ask(python, program, relay.url, QUESTIONS[0], 3)["clock"]
    row |= {"of_client": of_client, "share": f"{100 * statistics.median(of_client) / whole:.1f}"}
    return row


def imports(python, program, runs=3):
    module, seconds = program.removesuffix(".py"), []
    for _ in range(runs):
        started = time.perf_counter()
        subprocess.run([python, "-c", f"import {module}"], cwd=FOLDER, check=True)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--langchain", required=True, metavar="PYTHON")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    listed, versions = installed(chosen.langchain)
    with server(steps=100) as port:
        rows = [measured(chosen.langchain, program, port, 15) for program in PROGRAMS]
    unit = statistics.median(rows[0]["of_client"])
    first = imports(chosen.langchain, PROGRAMS[0])
    for row, packages in zip(rows, (0, len(listed))):
        taken = [seconds / unit for seconds in row.pop("of_client")]
        row["times_plain"], row["least"], row["most"] = (
            f"{each:.1f}" for each in (statistics.median(taken), min(taken), max(taken))
        )
        row["imported"] = f"{imports(chosen.langchain, row['program']) / first:.1f}"
        row |= {"packages": packages, "version": versions, "date": date.today().isoformat()}
        print(row)
    if chosen.write:
        csv_rows.write(FILE, rows)


if __name__ == "__main__":
    main()
