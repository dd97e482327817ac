"""The outcomes as one report: Markdown to read, JSON to compute with."""

import json
from dataclasses import asdict


def as_json(about, outcomes):
    return json.dumps({"about": about, "parts": [asdict(outcome) for outcome in outcomes]}, indent=2)


def as_markdown(about, outcomes):
    lines = ["# On GPUs", "", *(f"- {name}: {value}" for name, value in about.items()), ""]
    lines += table([{"part": each.name, "outcome": each.state} for each in outcomes])
    for each in outcomes:
        lines += ["", f"## {each.name}", ""]
        lines += table(each.rows) if each.rows else [f"{each.state.capitalize()}.", *in_full(each.why)]
    return "\n".join(lines) + "\n"


def table(rows):
    columns = list(rows[0])
    cells = [columns, ["---"] * len(columns), *[[in_words(row[column]) for column in columns] for row in rows]]
    return ["| " + " | ".join(row) + " |" for row in cells]


def in_words(value):
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def in_full(why):
    return ["", "```", *why.rstrip().splitlines(), "```"] if why else []
