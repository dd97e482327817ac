"""The course in a terminal: a prompt that knows where the reader is."""

import cmd
from contextlib import suppress

from . import commands
from .standing import Standing, within_reach
from .watching import watch

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
        standing = Standing(within_reach())
        self.name = standing.named(name).name if name or standing.following() else None
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
        following = Standing(within_reach()).after(self.name)
        self.go_to(following and following.name)
        print(Standing(within_reach()).in_words(following))

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
