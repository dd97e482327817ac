"""The command line: ``python -m tinydist doctor``."""

import argparse
import sys

from tinydist import doctor


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tinydist")
    commands = parser.add_subparsers(required=True, metavar="command")

    command = commands.add_parser("doctor", help="is everything here that tinydist needs?")
    command.set_defaults(run=lambda chosen: 0 if doctor.examine() else 1)

    chosen = parser.parse_args(arguments)
    return chosen.run(chosen)


if __name__ == "__main__":
    sys.exit(main())
