"""Flattens a ds_config.json into (path, value) pairs, and reports unknown keys with suggestions.

{"fp16": {"enabled": true}}  ->  fp16.enabled, True
"""

import difflib
import json
from pathlib import Path

from ...rules import shown
from .ds_keys import ALIASES, INSTEAD, KEYS, REMOVED, Key


class ConfigError(ValueError):
    """An invalid configuration."""

    def __init__(self, words):
        super().__init__(f"ds_config: {words}")


def require(holds, words):
    if not holds:
        raise ConfigError(words)


def read(source):
    if isinstance(source, dict):
        return source
    try:
        found = json.loads(Path(source).read_text(), object_pairs_hook=once)
    except OSError as error:
        raise ConfigError(f"{source}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{source} is not valid JSON: {error}") from None
    require(isinstance(found, dict), f"{source} must be an object {{...}}, got {shown(found)}")
    return found


def once(pairs):
    keys = [key for key, _ in pairs]
    twice = [key for key in keys if keys.count(key) > 1]
    require(not twice, f"{written(''.join(twice[:1]))} is a duplicate key")
    return dict(pairs)


def leaves(given, table=KEYS, inside=""):
    """(path, value) of what has no more sections."""
    for name, value in given.items():
        path = f"{inside}{ALIASES.get(name, name)}"
        require(inside or name not in REMOVED, f"{name} is removed from DeepSpeed 0.19.8{REMOVED.get(name, '')}")
        known = table.get(ALIASES.get(name, name)) if isinstance(table, dict) else None
        if path == "zero_optimization" and isinstance(value, bool):
            yield "zero_optimization.stage", int(value)  # as in DeepSpeed's getting-started page
        elif isinstance(known, dict) or path in ("optimizer.params", "scheduler.params"):
            if value is None and path.startswith("zero_optimization.offload_"):
                value = {}  # the only sections that DeepSpeed lets be null
            require(isinstance(value, dict), f"{path} must be an object {{...}}, got {shown(value)}")
            yield from leaves(value, known, f"{path}.")
        else:
            yield path, value


def key_of(path):
    table = KEYS
    for name in path.split("."):
        table = table.get(name) if isinstance(table, dict) else None
    return table if isinstance(table, Key) else None


def paths(table=KEYS, inside=""):
    for name, known in table.items():
        yield f"{inside}{name}"
        if isinstance(known, dict):
            yield from paths(known, f"{inside}{name}.")


def unknown(path, name, known=None):
    """``known``: params, if it is one."""
    near = nearest(path, paths()) if known is None else nearest(name, known)
    return ConfigError(f"{written(path)} is not a DeepSpeed key{near}")


def written(path):
    """On one line, whatever the file has for a key."""
    return path if path.isprintable() and path else repr(path)


def nearest(name, known):
    """By all of it; or, as a key is often right and its section is not, by its last part."""
    known, last = list(known), str(name).split(".")[-1]
    if last in INSTEAD:
        return f"; take {INSTEAD[last]}"
    parts = {each.split(".")[-1]: each for each in known}
    close = [each for each in [parts.get(last)] if each] or difflib.get_close_matches(str(name), known, 1)
    close = close or [parts[each] for each in difflib.get_close_matches(last, parts, 1)]
    return f"; did you mean {close[0]}" if close else ""
