"""Exercise commands: ``python -m tinydist list``, next, open, check, hint, reset."""

import webbrowser
from urllib.parse import quote

from ..console.command_name import command
from ..syllabus import progress
from ..syllabus.atomic_files import Trouble
from ..syllabus.progress_summary import Progress, path_of, shown, unwritable, within_reach
from ..syllabus.registry import find, of_chapter


def show_list(beginning=""):
    """The exercises by chapter, with the reader's progress; of chapters whose name begins so."""
    summary, chapter = Progress(within_reach()), None
    listed = [entry for entry in summary.entries if entry.chapter.startswith(beginning)]
    if not listed:
        raise LookupError(f"unknown chapter {beginning!r}. There are {', '.join(summary.chapters)}")
    for entry in listed:
        if entry.chapter != chapter:
            chapter = entry.chapter
            print(chapter)
        mark, tries = state(summary.done.get(entry.name, progress.NEW))
        print(f"  {mark:<4} {entry.name:<22} {entry.minutes:>3} min  {'*' * entry.difficulty:<6} {entry.title}{tries}")
    following = summary.following()
    print(f"{summary.count}. {f'Next: {following.name}' if following else 'All are done'}.")


def state(entry):
    tries = f" ({entry['tries']} tr{'y' if entry['tries'] == 1 else 'ies'})" if entry["tries"] else ""
    return "done" if entry["passed"] else "-", tries


def show_next():
    """The first exercise that is not done."""
    print(Progress(within_reach()).in_words())


def show_place(name):
    """How far the reader is in each chapter, and at which exercise."""
    summary = Progress(within_reach())
    here = summary.in_words(summary.named(name), "Here") if name else summary.in_words()
    print(f"{summary.bars()}\n\n{summary.count}. {here}")


def open_notebook(name=None):
    """Show the notebook of an exercise, or of the next one, in the JupyterLab that serves it."""
    from jupyter_server.serverapp import list_running_servers

    path = path_of(Progress(within_reach()).named(name)).resolve()
    for server in list_running_servers():
        if path.is_relative_to(server["root_dir"]):
            place = quote(path.relative_to(server["root_dir"]).as_posix())
            webbrowser.open(f"{server['url']}lab/tree/{place}?token={server['token']}")
            print(f"{path.name} is open in your browser")
            return True
    print(f"{path} is the file. No JupyterLab serves its folder: `make lab` starts one")
    return False


def check_answers(name):
    """Judge a function in the reader's notebook, or all of a chapter; true if they pass."""
    chapter = of_chapter(name)
    passed = []
    for exercise in chapter or [find(name)]:
        if passed:
            print()
        passed.append(check_answer(exercise))
    return all(passed)


def check_answer(exercise):
    from ..syllabus.saved_notebook import answer_in
    from .reader import find, report  # with torch

    path = path_of(exercise)
    verdict = report(answer_in(path, exercise.name), find(exercise.name))
    if verdict.state == "not yet":
        print(f"\n{unwritable(path) or f'Work on it in {shown(path)}, and save the notebook'}")
    if verdict.state == "wrong":
        print(f"\nA hint: {command('hint', exercise.name)}")
    return verdict.passed


def show_hint(name):
    from .reader import hint

    hint(find(name).name)


def reset(name):
    from ..syllabus.saved_notebook import put_stub_back

    exercise = find(name)
    before = put_stub_back(path_of(exercise), exercise)
    aside = progress.forget(exercise.name)
    if aside:
        print(f"Your progress could not be read, and begins anew; the old file is {aside}.")
    print(f"The stub of {exercise.name} is back in its cell; if the notebook is open, reload it. {before}")


def carry_out(do, *names):
    """Run a command. Returns the exit status, 0 on success; errors are printed in one sentence."""
    try:
        return 1 if do(*names) is False else 0
    except (LookupError, Trouble) as error:
        print(error)
        return 1
