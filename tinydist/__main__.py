"""The command line, ``python -m tinydist``: the course in a terminal; plan, train, serve, diagnose, doctor."""

import argparse
import errno
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from pathlib import Path

from tinydist.console.command_name import command
from tinydist.diagnose import doctor

VENV = Path(__file__).parents[1] / ".venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def main(arguments=None):
    parser = argparse.ArgumentParser(prog=command())
    parser.set_defaults(run=begin)
    commands = parser.add_subparsers(metavar="command")

    doctors = add_command(commands, "doctor", "check the installation")
    doctors.set_defaults(run=lambda chosen: 0 if doctor.examine() else 1)

    lists = add_command(commands, "list", "list exercises and progress")
    lists.add_argument("chapter", nargs="?", default="", help="prefix of a chapter, e.g. 02")
    lists.set_defaults(run=lambda chosen: in_the_course("show_list", chosen.chapter))

    nexts = add_command(commands, "next", "show the next unsolved exercise")
    nexts.set_defaults(run=lambda chosen: in_the_course("show_next"))

    watches = add_command(commands, "watch", "check an exercise whenever you save its notebook")
    watches.add_argument("exercise", nargs="?", help="exercise name (default: the next unsolved one)")
    watches.set_defaults(run=lambda chosen: in_the_course("watch", chosen.exercise, check_answers, of="lab.shell"))

    opens = add_command(commands, "open", "open the notebook of an exercise in the browser")
    opens.add_argument("exercise", nargs="?", help="exercise name (default: the next unsolved one)")
    opens.set_defaults(run=lambda chosen: in_the_course("open_notebook", chosen.exercise))

    checks = add_command(commands, "check", "check your answer, or a whole chapter (save the notebook first)")
    checks.add_argument("exercise", help="exercise name, e.g. broadcast_in_parts, or prefix of a chapter, e.g. 02")
    checks.set_defaults(run=lambda chosen: check_answers(chosen.exercise))

    hints = add_command(commands, "hint", "show the next hint, from general to specific")
    hints.add_argument("exercise", help="exercise name, e.g. broadcast_in_parts")
    hints.set_defaults(run=lambda chosen: in_the_course("show_hint", chosen.exercise))

    resets = add_command(commands, "reset", "reset the exercise and its progress")
    resets.add_argument("exercise", help="exercise name, e.g. broadcast_in_parts")
    resets.set_defaults(run=lambda chosen: in_the_course("reset", chosen.exercise))

    copies = add_command(commands, "copy-course", "copy notebooks, exercises and solutions into a folder")
    copies.add_argument("folder", help="destination folder")
    copies.set_defaults(run=lambda chosen: in_the_course("copy_course", chosen.folder, of="syllabus.copy_course"))

    runs = "run a script that is written for torchrun, on simulated ranks"
    add_program(commands, "run", "tinydist.scripts.command", runs)
    plans = "find parallel plans that fit a model on a cluster, and estimate costs"
    add_program(commands, "plan", "tinydist.planner.command", plans)
    add_program(commands, "train", "tinydist.training.command", "train a GPT on a mesh of ranks")
    add_program(
        commands,
        "diagnose",
        "tinydist.diagnose.command",
        "find stragglers and hangs from traces and Flight Recorder dumps",
    )
    serves = "serve a small decoder with an OpenAI-compatible API"
    add_program(commands, "serve", "tinydist.serving.command", serves)

    chosen, options = parser.parse_known_args(arguments)
    if options and "program" not in chosen:
        parser.error(f"unrecognized arguments: {' '.join(options)}")
    chosen.options = options
    return while_somebody_reads(chosen.run, chosen)


def add_command(commands, name, help):
    return commands.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")


def add_program(commands, name, module, help):
    """A command that reads its own options."""
    adds = commands.add_parser(name, help=help, add_help=False)
    adds.set_defaults(run=in_its_own_words, program=module)


def in_its_own_words(chosen):
    program = imported(chosen.program)
    return program.main(chosen.options) if program else 1


def begin(chosen):
    """An interactive prompt on a terminal; otherwise the list of exercises."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        return in_the_course("ask", check_answers, of="lab.shell")
    return in_the_course("show_list")


def check_answers(name):
    return in_a_child(in_the_course, "check_answers", name)


def in_the_course(does, *arguments, of="lab.commands"):
    try:
        commands, module = import_module("tinydist.lab.commands"), import_module(f"tinydist.{of}")
        return commands.carry_out(getattr(module, does), *arguments)
    except ModuleNotFoundError as missing:
        return without(missing)


def imported(name):
    """Imported lazily: the doctor must start without torch."""
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        without(missing)


def without(missing):
    print(f"{sys.executable} has no {missing.name.split('.')[0]}, which tinydist needs. {another_python()}")
    return 1


def another_python():
    if VENV.exists() and VENV.parents[1] != Path(sys.prefix):
        return f"Use another Python: {command(python=str(VENV))}"
    return "`make lab` creates an environment with it in .venv"


def in_a_child(do, *arguments):
    """Run the notebook's cells in a child process: if they end it, the exit status is not 0."""
    with ProcessPoolExecutor(1) as child:
        try:
            return child.submit(while_somebody_reads, do, *arguments).result()
        except (BrokenProcessPool, SystemExit):
            print("No verdict: the notebook ended its own process. Does it call os._exit?")
            return 1


def while_somebody_reads(do, *arguments):
    """Ignore a closed pipe (``| head``): it is not an error. A full disk is one, and is told in a line."""
    try:
        status = do(*arguments)
        sys.stdout.flush()
        return status
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        if error.errno == errno.ENOSPC:
            print(f"tinydist: {error.filename or 'standard output'}: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still in the buffer
        return 1


if __name__ == "__main__":
    sys.exit(main())
