"""The options of `run`, `train`, `serve` and `plan`: each says what it is, and none goes by another name."""

import pytest

from tinydist.__main__ import main
from tinydist.planner import command as plan
from tinydist.scripts import command as run
from tinydist.serving import command as serve
from tinydist.training import command as train

COMMANDS = {"run": run, "train": train, "serve": serve, "plan": plan}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_help_text_that_stands_alone(name):
    for action in COMMANDS[name].options()._actions:
        assert action.help and not action.help.startswith(("of ", "the same", "whose ", "its ")), action.option_strings


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_every_option(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    shown = capsys.readouterr().out
    hidden = ("--local_rank",)
    names = {each for action in COMMANDS[name].options()._actions for each in action.option_strings}
    assert ended.value.code == 0 and all(each in shown for each in names - {*hidden})


@pytest.mark.parametrize("word", ["--sequence save", "--warmup 1", "--rate linear", "--chunks 2", "--clip 1"])
def test_train_takes_no_abbreviations_and_no_former_names(word, capsys):
    assert main(["train", *word.split()]) == 2
    assert capsys.readouterr().err == f"train: unrecognized arguments: {word}\n"


@pytest.mark.parametrize("word", ["--slots 2", "--budget 8", "--blocks 8", "--max-num 2"])
def test_serve_takes_no_abbreviations_and_no_former_names(word, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["serve", *word.split()])
    assert ended.value.code == 2 and f"unrecognized arguments: {word}" in capsys.readouterr().err
