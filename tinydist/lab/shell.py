"""The course in a terminal: an interactive prompt that tracks the current exercise, and checks saved notebooks."""

import cmd
from contextlib import suppress

from ..console.keys import keys
from ..console.progress_message import progress_message
from ..syllabus.progress_summary import Progress, path_of, shown, within_reach
from . import commands

POLL = 0.2  # seconds between two looks at the file
SAVED = "saved"

HELP = """\
next    go on to the next exercise        hint    from general to specific
check   judge what your notebook says     reset   put the stub back
watch   check whenever you save it        open    the notebook, in the browser
list    all exercises, or list 02         where   how far you are
quit    leave"""


def ask(check):
    """Until the reader leaves."""
    with suppress(KeyboardInterrupt):
        Prompt(check).cmdloop()


class Prompt(cmd.Cmd):
    """``check(name)`` judges what the reader's notebook says. A command without a name is for the exercise that stands
    in the prompt; one with a name goes there."""

    def __init__(self, check):
        super().__init__()
        self.check, self.name = check, None
        self.go_to(None)

    def go_to(self, name):
        summary = Progress(within_reach())
        self.name = summary.named(name).name if name or summary.following() else None
        self.prompt = f"\n{self.name or 'tinydist'}> "

    def here(self, do, name):
        def there():
            if name:
                self.go_to(name)
            return do(self.name)

        commands.carry_out(there)

    def onecmd(self, line):
        try:
            return super().onecmd(line)
        except KeyboardInterrupt:
            print()

    def preloop(self):
        self.do_where()
        self.do_help()

    def do_where(self, _=""):
        commands.carry_out(commands.show_place, self.name)

    def do_next(self, _):
        commands.carry_out(self.go_on)

    def go_on(self):
        following = Progress(within_reach()).after(self.name)
        self.go_to(following and following.name)
        print(Progress(within_reach()).in_words(following))

    def do_list(self, chapter):
        commands.carry_out(commands.show_list, chapter)

    def do_check(self, name):
        self.here(self.check, name)

    def do_watch(self, name):
        self.here(lambda name: self.go_to(watch(name, self.check)), name)

    def do_hint(self, name):
        self.here(commands.show_hint, name)

    def do_reset(self, name):
        self.here(commands.reset, name)

    def do_open(self, name):
        self.here(commands.open_notebook, name)

    def do_help(self, _=""):
        print(f"\n{HELP}")

    def do_quit(self, _):
        return True

    do_q = do_EOF = do_quit

    def emptyline(self):
        """Nothing: by itself it would do the last command once more."""

    def default(self, line):
        print(f"{line.split()[0]}? There are:\n{HELP}")

    def completedefault(self, text, *_):
        return [entry.name for entry in within_reach() if entry.name.startswith(text)]


# The check of a notebook that is saved.


def watch(name, check):
    """Begin with the exercise of that name; None: the next one. ``check(name)`` says what holds and what does not.

    Ends when the reader presses q or Ctrl-C, and returns the name of the exercise at which he was.
    """
    entry = Progress(within_reach()).named(name)
    with progress_message("loading torch"):
        from . import reader as reader  # once: the processes that check begin as copies of this one
    with suppress(KeyboardInterrupt), keys() as pressed:
        key = SAVED
        while key != "q":
            path = path_of(entry)
            before = state(path)
            if key == SAVED:
                check(entry.name)
            elif key == "h":
                commands.show_hint(entry.name)
            elif key == "n":
                entry = Progress(within_reach()).after(entry.name) or entry
                print(Progress(within_reach()).in_words(entry))
            print(f"\n{tell(entry)}", flush=True)
            key = next_event(path, before, pressed)
    return entry.name


def tell(entry):
    summary = Progress(within_reach())
    path = path_of(entry)
    return (
        f"{entry.chapter} {summary.dots(entry.chapter)}  {summary.count}\n"
        f"Watching {shown(path)}: save it, and {entry.name} is checked. n next, h hint, q quit"
    )


def state(path):
    """Another one each time that the file is written."""
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def next_event(path, before, pressed):
    """SAVED, or the key that is pressed first."""
    while True:
        key = pressed(POLL)
        if key:
            return key
        if path.exists() and state(path) != before:
            return SAVED
