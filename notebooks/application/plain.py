"""Questions about notes, answered by a server with an OpenAI-style API: retrieve a note, ask, cite. No other package.

python plain.py http://127.0.0.1:8000/v1 "What is a collective?" [REPEATED]
"""

import csv
import json
import math
import re
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path

NOTES = Path(__file__).parent / "notes.csv"
PROMPT = "Note {source}: {text}\nQuestion: {question}\nAnswer:"
MAX_TOKENS = 24


def read_notes():
    with NOTES.open() as file:
        return list(csv.DictReader(file))


def embed(text):
    """How often each word is there."""
    return Counter(re.findall(r"[a-z0-9]+", text.lower()))


def cosine(one, other):
    shared = sum(one[word] * other[word] for word in one)
    lengths = [math.sqrt(sum(count**2 for count in each.values())) for each in (one, other)]
    return shared / math.prod(lengths) if shared else 0.0


def retrieve(notes, question):
    """The note that is nearest; of several, the first."""
    asked = embed(question)
    return max(notes, key=lambda note: cosine(embed(note["text"]), asked))


def complete(url, prompt):
    fields = {"model": "tinydist", "prompt": prompt, "max_tokens": MAX_TOKENS, "temperature": 0}
    body = json.dumps(fields).encode()
    request = urllib.request.Request(f"{url}/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def ask(url, notes, question):
    note = retrieve(notes, question)
    answer = complete(url, PROMPT.format(**note, question=question))
    return {"answer": answer["choices"][0]["text"], "source": note["source"]}


def timed(ask_once, times):
    """Its answer, and with ``times`` the processor's seconds and the clock's in that many further calls, each."""
    answer = ask_once()
    started = time.process_time(), time.perf_counter()
    for _ in range(times):
        ask_once()
    spent = time.process_time() - started[0], time.perf_counter() - started[1]
    return answer | ({"processor": spent[0] / times, "clock": spent[1] / times} if times else {})


if __name__ == "__main__":
    url, question, *repeated = sys.argv[1:]
    notes = read_notes()
    print(json.dumps(timed(lambda: ask(url, notes, question), int(*repeated or [0]))))
