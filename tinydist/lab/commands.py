"""The exercises on the command line: ``python -m tinydist``, and then list, check, hint or reset."""

from ..shell import command
from . import progress
from .find import course, find, of_chapter
from .notebook import NotebookError, answer_in, path_of, put_stub_back
from .reader import hint, report


def show_list():
    """The exercises by chapter, with the reader's progress."""
    done, chapter, shown = progress.load(), None, list(within_reach())
    for exercise in shown:
        if exercise.chapter != chapter:
            chapter = exercise.chapter
            print(chapter)
        mark, tries = state(done.get(exercise.name, progress.NEW))
        print(
            f"  {mark:<4} {exercise.name:<22} {exercise.minutes:>3} min  {stars(exercise):<6} {exercise.title}{tries}"
        )
    left = [each.name for each in shown if not done.get(each.name, progress.NEW)["passed"]]
    following = f"Next: {left[0]}" if left else "All are done"
    print(f"{len(shown) - len(left)} of {len(shown)} done. {following}.")


def within_reach():
    """Those that have a notebook in the reader's folder; all, where there is no folder."""
    folder = progress.folder()
    return [each for each in course() if not folder or (folder / f"{each.chapter}.ipynb").exists()]


def state(entry):
    tries = f" ({entry['tries']} tr{'y' if entry['tries'] == 1 else 'ies'})" if entry["tries"] else ""
    return "done" if entry["passed"] else "-", tries


def stars(exercise):
    return "*" * exercise.difficulty


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
    answer = answer_in(path_of(exercise), exercise.name)
    verdict = report(answer)
    if verdict.state == "wrong":
        print(f"\nA hint: {command('hint', exercise.name)}")
    return verdict.passed


def show_hint(name):
    hint(find(name).name)


def reset(name):
    exercise = find(name)
    before = put_stub_back(path_of(exercise), exercise)
    aside = progress.forget(exercise.name)
    if aside:
        print(f"Your progress could not be read, and begins anew; the old file is {aside}.")
    print(f"The stub of {exercise.name} is back in its cell; if the notebook is open, reload it. {before}")


def carry_out(do, *names):
    """The exit status: 0 if it went well. What goes wrong is told in a sentence."""
    try:
        return 1 if do(*names) is False else 0
    except (LookupError, NotebookError, progress.ProgressError) as error:
        print(error)
        return 1
