"""To whom a program connects when it asks one question, and what LangSmith's tracing sends if it is switched on.

    python -m benchmarks.tracing --langchain PYTHON [--write]    # --write: into notebooks/data/22_tracing.csv

PYTHON: as for benchmarks/applications.py. Two relays on this machine stand for the server and for LangSmith.
"""

import argparse
import os
import re
import subprocess
from datetime import date

from benchmarks import csv_rows
from benchmarks.applications import FILE, FOLDER, QUESTIONS, installed

WATCHED = """
import runpy, sys
def connects(event, values):
    if event == "socket.connect":
        print("connects to", *values[1][:2], file=sys.stderr)
sys.addaudithook(connects)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def traced(python, program="with_langchain.py"):
    """Rows: without and with LangSmith's tracing, the addresses of one question, and what the second of them gets."""
    from relay import Relay

    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LANGSMITH", "LANGCHAIN"))}
    rows = []
    for tracing in ("not set", "true"):
        with Relay() as server, Relay() as elsewhere:
            ours = {"LANGSMITH_ENDPOINT": elsewhere.url.removesuffix("/v1")}  # not theirs; no key is needed
            command = [python, "-c", WATCHED, program, server.url, QUESTIONS[1]]
            settings = kept | ours | ({"LANGSMITH_TRACING": "true"} if tracing == "true" else {})
            done = subprocess.run(command, cwd=FOLDER, env=settings, capture_output=True, text=True, check=True)
        row = {"tracing": tracing, "addresses": len(set(re.findall(r"connects to (\S+ \d+)", done.stderr)))}
        row |= {"to_server": len(server.bodies), "elsewhere": len(elsewhere.bodies), "bytes": elsewhere.sent["body"]}
        row["with_question"] = any(QUESTIONS[1].encode() in body for body in elsewhere.bodies)
        rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--langchain", required=True, metavar="PYTHON")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    about = {"version": installed(chosen.langchain)[1], "date": date.today().isoformat()}
    rows = [row | about for row in traced(chosen.langchain)]
    print(*rows, sep="\n")
    if chosen.write:
        csv_rows.write(FILE.with_name("22_tracing.csv"), rows)


if __name__ == "__main__":
    main()
