"""The command line: ``python -m tinydist`` lists the exercises; check, hint and reset one; ask the doctor."""

import argparse
import sys

from tinydist import doctor


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tinydist")
    parser.set_defaults(run=lambda chosen: in_the_lab("show_list"))
    commands = parser.add_subparsers(metavar="command")

    command = commands.add_parser("doctor", help="is everything here that tinydist needs?")
    command.set_defaults(run=lambda chosen: 0 if doctor.examine() else 1)

    command = commands.add_parser("list", help="the exercises, and which are done")
    command.set_defaults(run=lambda chosen: in_the_lab("show_list"))

    add_exercise_command(
        commands, "check", "check_answers", "check your answer, or all of a chapter (save the notebook)"
    )
    add_exercise_command(commands, "hint", "show_hint", "the next hint, from general to specific")
    add_exercise_command(commands, "reset", "reset", "put the stub back, and forget the progress")

    chosen = parser.parse_args(arguments)
    return chosen.run(chosen)


def add_exercise_command(commands, name, does, help):
    command = commands.add_parser(name, help=help)
    command.add_argument("exercise", help="its name, such as ring_all_reduce")
    command.set_defaults(run=lambda chosen: in_the_lab(does, chosen.exercise))


def in_the_lab(does, *names):
    from tinydist.lab import commands  # only now: the doctor must start without torch

    return commands.carry_out(getattr(commands, does), *names)


if __name__ == "__main__":
    sys.exit(main())
