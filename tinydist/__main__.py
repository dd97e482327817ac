"""The command line: ``python -m tinydist`` lists the exercises; check, hint, reset; plan; train; diagnose; doctor."""

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from importlib import import_module
from pathlib import Path

from tinydist import doctor
from tinydist.shell import command

VENV = Path(__file__).parents[1] / ".venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def main(arguments=None):
    parser = argparse.ArgumentParser(prog=command())
    parser.set_defaults(run=lambda chosen: in_the_lab("show_list"))
    commands = parser.add_subparsers(metavar="command")

    doctors = commands.add_parser("doctor", help="is everything here that tinydist needs?")
    doctors.set_defaults(run=lambda chosen: 0 if doctor.examine() else 1)

    lists = commands.add_parser("list", help="the exercises, and which are done")
    lists.set_defaults(run=lambda chosen: in_the_lab("show_list"))

    check = "check your answer, or all of a chapter (save the notebook)"
    add_exercise_command(commands, "check", partial(in_a_child, in_the_lab), "check_answers", check)
    add_exercise_command(commands, "hint", in_the_lab, "show_hint", "the next hint, from general to specific")
    add_exercise_command(commands, "reset", in_the_lab, "reset", "put the stub back, and forget the progress")

    plans = "which parallel plan fits a model on a cluster, and what a run costs (plan --help)"
    add_program(commands, "plan", "tinydist.planner.command", plans)
    add_program(commands, "train", "tinydist.training.command", "train a GPT on a mesh of ranks (train --help)")
    add_program(commands, "diagnose", "tinydist.diagnose", "who keeps the others waiting, by traces and flight records")

    chosen, options = parser.parse_known_args(arguments)
    if options and "program" not in chosen:
        parser.error(f"unrecognized arguments: {' '.join(options)}")
    chosen.options = options
    return while_somebody_reads(chosen.run, chosen)


def add_exercise_command(commands, name, where, does, help):
    adds = commands.add_parser(name, help=help)
    adds.add_argument("exercise", help="its name, such as all_reduce_many")
    adds.set_defaults(run=lambda chosen: where(does, chosen.exercise))


def add_program(commands, name, module, help):
    """A command that reads its own options."""
    adds = commands.add_parser(name, help=help, add_help=False)
    adds.set_defaults(run=in_its_own_words, program=module)


def in_its_own_words(chosen):
    program = imported(chosen.program)
    return program.main(chosen.options) if program else 1


def in_the_lab(does, *names):
    commands = imported("tinydist.lab.commands")
    return commands.carry_out(getattr(commands, does), *names) if commands else 1


def imported(name):
    """Only when it is needed: the doctor must start without torch."""
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        print(f"{sys.executable} has no {missing.name.split('.')[0]}, which tinydist needs. {another_python()}")
        return None


def another_python():
    if VENV.exists() and VENV.parents[1] != Path(sys.prefix):
        return f"Use another Python: {command(python=str(VENV))}"
    return "`make lab` makes an environment that has it, in .venv"


def in_a_child(do, *arguments):
    """For the reader's own cells: whatever they do to their process, nothing but a verdict ends this one with 0."""
    with ProcessPoolExecutor(1) as child:
        try:
            return child.submit(while_somebody_reads, do, *arguments).result()
        except (BrokenProcessPool, SystemExit):
            print("There is no verdict: your notebook ended the process in which it ran. Does it call os._exit?")
            return 1


def while_somebody_reads(do, *arguments):
    """``| head`` reads some lines and goes: that is no error of the command's."""
    try:
        status = do(*arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still in the buffer
        return 1


if __name__ == "__main__":
    sys.exit(main())
