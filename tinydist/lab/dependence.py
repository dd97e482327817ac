"""What a wrong number has to do with the arguments: it is the right one times some of them, or lacks a product of them,
or would be right if one of them were another.

The answer runs with one argument after another scaled, and so does the reference; and both in the other cases.
"""

import inspect
from contextlib import suppress
from fractions import Fraction
from functools import cached_property
from itertools import chain
from math import isclose, isfinite

from .differences import close, same, unequal
from .errors import listed
from .isolation import memory_limited
from .leaves import leaves

WHOLE, FEW, FAR = ((2, 4), (1 / 2, 1 / 4)), ((1.01, 1.03), (1 / 2, 1 / 4)), (64, 1 / 64)  # scales
BUDGET = 2**29  # bytes that a run with other arguments may write: an argument may be the size of a tensor
NEAR = 1e-6  # so much more, or less, is a little
POWERS = {0: "", 1: "", -1: "", 2: "²", -2: "²", 3: "³"}
FORMS = {  # of a whole number of things, such as ranks
    "({0} - 1)/{0}": lambda n: (n - 1) / n,
    "{0}/({0} - 1)": lambda n: n / (n - 1),
    "({0} - 1)": lambda n: n - 1,
    "1/({0} - 1)": lambda n: 1 / (n - 1),
    "({0}/({0} - 1))²": lambda n: (n / (n - 1)) ** 2,
    "(({0} - 1)/{0})²": lambda n: ((n - 1) / n) ** 2,
}
IF = {  # what an argument may have been taken for
    "0": lambda x: 0 * x,
    "one less": lambda x: x - 1 if type(x) is int else None,
    "one more": lambda x: x + 1 if type(x) is int else None,
    **{f"{n} times as large": lambda x, n=n: n * x for n in (2, 4, 8)},
    **{f"{n} times smaller": lambda x, n=n: x / n if type(x) is float or x % n else x // n for n in (2, 4, 8)},
}


class Worlds:
    """``path``: of the number that is wrong, among the leaves that a run returns; None, where all are words. A pair is
    that number, as the answer has it and as it is right."""

    def __init__(self, exercise, trial, path, results):
        self.exercise, self.trial, self.path, self.results = exercise, trial, path, results
        self.given, self.mine = trial.case.arguments(0), leaves(trial.returned[0], results)
        self.its = leaves(exercise.right(trial.case).returned[0], results)
        called = [inspect.signature(each).parameters for each in (exercise.program, exercise.reference)]
        self.names = [f"`{name}`" for name in called[len(called[0]) <= 2]][-len(self.given) :]
        self.here = self.pair(self.given)
        self.whole = self.here and all(type(each) is int for each in self.here)
        self.worlds = {}  # argument -> [(scales, a pair for each)]
        for place, name in enumerate(self.names) if self.here else ():
            scales = WHOLE if self.whole or whole(self.given[place]) else FEW
            runs = [(each, [self.pair(self.scaled(place, by)) for by in each]) for each in scales]
            runs = [(each, pairs) for each, pairs in runs if all(pairs)]
            if runs:
                self.worlds[name] = runs
        self.beside = {name: runs[0][1] for name, runs in self.worlds.items()}  # argument -> the first pairs
        self.pairs = [self.here, *chain(*self.beside.values())]

    def scaled(self, place, by):
        new = scaled(self.given[place], by)
        return None if new is None or new == self.given[place] else replaced(self.given, place, new)

    def pair(self, arguments):
        """None, where one of them is no number."""
        its = self.right(arguments) if arguments and self.path is not None else None
        mine = self.answer(arguments) if its else None
        both = tuple(each.get(self.path) for each in (mine or {}, its or {}))
        return both if all(map(finite, both)) else None

    def answer(self, arguments):
        with memory_limited(BUDGET):
            run = self.trial.again(watched=True, arguments=lambda rank: arguments)
        return None if run.error else leaves(run.returned[0], self.results)

    def right(self, arguments):
        with suppress(Exception), memory_limited(BUDGET):
            return leaves(self.exercise.program(self.exercise.reference, *arguments), self.results)

    @cached_property
    def others(self):
        """(arguments, what the answer returns, what is right) in the other cases in which it comes to its end."""
        cases = [case for case in self.exercise.cases if case is not self.trial.case]
        runs = [(case.arguments(0), self.trial.there(case), self.exercise.right(case)) for case in cases]
        return [
            (given, *(leaves(run.returned[0], self.results) for run in both))
            for given, *both in runs
            if not any(run.error for run in both)
        ]

    def reason(self):
        looks = (self.times, self.lacks, self.edge, self.one_off, self.idle, self.as_if, self.follows)
        return next(filter(None, (look() for look in (looks if self.worlds else (self.edge, self.as_if)))), "")

    def times(self):
        """It is the right number times something."""
        if not all(its and mine for mine, its in self.pairs) or min(map(abs, self.here)) < 50 * self.whole:
            return ""
        if self.whole and any(self.here[0] in each for each in self.given if isinstance(each, list | dict)):
            return ""  # chosen among them, not computed
        many = Fraction(self.here[0] / self.here[1]).limit_denominator(9)
        many = many or Fraction(1, round(self.here[1] / self.here[0]))
        if many != 1 and all(near(mine, its * many, self.whole * (1 + abs(many))) for mine, its in self.pairs):
            return self.constant(many)
        known, text = self.product(lambda mine, its: its and mine / its, 2 / min(self.here) if self.whole else 0)
        return f"It is what is right times {text}" if known else ""

    def constant(self, many):
        """So many times what is right wherever it is wrong; or as many times as there are things in an argument."""
        cases = [(self.given, self.mine, self.its), *self.others]
        cases = [(given, mine.get(self.path), its.get(self.path)) for given, mine, its in cases]
        cases = [(given, mine, its) for given, mine, its in cases if finite(mine) and finite(its) and mine != its]
        simple = len(cases) > 1 or max(abs(many.numerator), many.denominator) <= 4  # in one case much is by chance
        if simple and all(near(mine, its * many, self.whole * (1 + abs(many))) for _, mine, its in cases):
            if many == -1:
                return "It has the wrong sign"
            wrong = "is it in another unit?" if not 1e-3 <= abs(many) < 1000 else "a constant in it is wrong"
            shown = f"{many.numerator:,}" + f"/{many.denominator:,}" * (many.denominator > 1)
            return f"It is {shown} times what is right, whatever the arguments are: {wrong}"
        for place, name in enumerate(self.names):
            counted = [(given[place], mine, its) for given, mine, its in cases if isinstance(given[place], list | dict)]
            for power, how in ((1, "times"), (-1, "divided by")):
                if counted and all(near(mine, its * len(things) ** power) for things, mine, its in counted if things):
                    return f"It is what is right {how} the number of things in {name}"
        return ""

    def lacks(self):
        """What it has too much, or too little, is a product of arguments."""
        off = [mine - its for mine, its in self.pairs]
        if max(map(abs, off)) <= 1 * self.whole or abs(off[0]) < 1e-7 * max(map(abs, self.here)):
            return ""
        known, text = self.product(lambda mine, its: mine - its)
        how = "has too much" if off[0] > 0 else "lacks"
        return f"It {how}: {text}" if known else f"What it {how} grows as {text}" if text else ""

    def product(self, of, within=0):
        """Of what grows as a product of arguments does: is its factor known? And in words; "", where it does not."""
        factor, above, below = abs(of(*self.here)), [], []
        for name, old in zip(self.names, self.given):
            law = self.law(name, old, of, within)
            if law is None:
                return False, ""
            text, is_above, value = law
            (above if is_above else below).extend([text] * bool(text))
            factor = factor and value and factor / value
        if not above and not below:
            return False, ""
        count = factor and Fraction(factor).limit_denominator(9)
        known = bool(count) and near(factor, float(count), within) and count.numerator <= 1000
        shown = [str(count)] if known and not (count == 1 and above) else []
        if not known and not above:
            above = ["1"]
        return known, " ".join([*shown, *above]) + "".join(f" / {each}" for each in below)

    def law(self, name, old, of, within):
        """How it grows with one argument: (words, above the line?, value here; None, where that is no number)."""
        tried, first = self.worlds.get(name, [((), ())]), of(*self.here)
        if self.whole:  # rounded numbers are soon alike by chance
            tried = [[list(chain(*each)) for each in zip(*tried)]]
        for scales, pairs in tried:
            grown = [(by, of(*pair) / first) for by, pair in zip(scales, pairs)]
            for power, sign in POWERS.items():
                if all(near(each, by**power, within) for by, each in grown):
                    value = old**power if finite(old) else None
                    return (name + sign, power > 0, value) if power else ("", True, 1)
            for text, form in FORMS.items() if type(old) is int and old > 1 else ():
                if all(by > 1 and near(each, form(by * old) / form(old), within) for by, each in grown):
                    return text.format(name), True, form(old)
        return None

    def edge(self):
        """It is wrong here, and right on both sides, of which one has what is right here, and the other what it has."""
        at, right = unequal(self.mine, self.its)[0], []
        for place, (name, old) in enumerate(zip(self.names, self.given)):
            worlds = [replaced(self.given, place, new) for new in besides(old)]
            rights = [self.right(given) for given in worlds]
            found = [each[at] for each in rights if each and at in each]
            sides = all(any(alike(each, this[at]) for each in found) for this in (self.mine, self.its))
            if sides and not alike(self.mine[at], self.its[at]) and all(map(same, map(self.answer, worlds), rights)):
                right.append(name)
        if not right:
            return ""
        return (
            f"With {listed(right)} a little larger, or smaller, it is right: here two things are just equal, or one "
            "divides the other. Look at <, <=, > and >=, and at rounding"
        )

    def one_off(self):
        off = {mine - its for mine, its in self.pairs} if self.whole else set()
        if off - {0} not in ({1}, {-1}):
            return ""
        right = "and with other arguments it may be right: look at <, <= and rounding"
        others = right if 0 in off else "also with other arguments"
        return f"It is one {'more' if 1 in off else 'less'} than is right, {others}"

    def idle(self):
        """Arguments that do not count, or that should not."""
        idle, moved, others = [], [], []
        for name, pairs in self.beside.items():
            far = (self.pair(self.scaled(self.names.index(name), by)) for by in FAR)
            (mine, its), (mine_far, its_far) = zip(self.here, *pairs), zip(self.here, *pairs, *filter(None, far))
            if still(mine_far) and still(its) is False:
                idle.append(name)
            if still(mine) is False and still(its_far):
                moved.append(name)
            if not self.keeps_off(mine_far, its_far):
                others.append(name)
        if idle and set(others) <= set(idle) and self.here[0] and len(idle) < len(self.worlds):
            return f"It stays the same if {listed(idle)} {'is' if len(idle) == 1 else 'are'} changed, and should not"
        return f"It changes with {listed(moved)}, and should not" if moved and not self.whole else ""

    def keeps_off(self, mine, its):
        """Is it as far off, or as many times too large, whatever this argument is?"""
        rounded = self.whole * 4 * max(map(abs, (*mine, *its)))
        times = all(near(a * its[0], b * mine[0], rounded) for a, b in zip(mine, its))
        return times or all(near(a - b, mine[0] - its[0], 2 * self.whole) for a, b in zip(mine, its))

    def as_if(self):
        """It would be right if one argument were another: here, and in the other cases that show it."""
        ways = []
        for words, *way in self.takes():
            if self.right_if(self.mine, self.given, *way):
                elsewhere = {(self.right_if(mine, given, *way), same(mine, its)) for given, mine, its in self.others}
                shown = (True, False) in elsewhere or all(right for _, right in elsewhere)
                ways += [words] * (shown and not elsewhere & {(False, False), (False, True)})
        return f"This would be right if {ways[0]}" if len(ways) == 1 else ""  # of several each may be a chance

    def takes(self):
        """(words, place, another place, what of the argument there is taken for the one here)."""
        numbers = [place for place, each in enumerate(self.given) if finite(each)]
        for place in numbers:
            name, here = self.names[place], self.given[place]
            for words, of in IF.items():
                yield f"{name} were {words}", place, place, of
            for other in numbers:
                if 1e-3 < abs(self.given[other] / (here or 1)) < 1e3:
                    yield f"{name} were as large as {self.names[other]}", place, other, lambda x: x

    def right_if(self, mine, given, place, other, of):
        """None: it cannot be told, as the argument is the same."""
        new = of(given[other]) if finite(given[place]) and finite(given[other]) else None
        if not finite(new) or new == given[place]:
            return None
        its = self.right(replaced(given, place, new))
        return bool(mine and its) and same(mine, its)

    def follows(self):
        """Which arguments it follows as it should, and which not."""
        off, right, wrong = self.here[0] - self.here[1], [], []
        for name, pairs in self.beside.items():
            if any(pair != self.here for pair in pairs):
                (right if all(near(mine - its, off) for mine, its in pairs) else wrong).append(name)
        if not right or not wrong:
            return ""
        return f"It grows with {listed(right)} as it should. What is wrong depends on {listed(wrong)}"


def replaced(given, place, new):
    return (*given[:place], new, *given[place + 1 :])


def finite(number):
    return type(number) in (int, float) and isfinite(number)


def whole(thing):
    return type(thing) is int or (isinstance(thing, list) and all(map(whole, thing)))


def scaled(thing, by):
    """Its numbers; None, if it is something else, or whole numbers would not be whole."""
    if isinstance(thing, list):
        each = [scaled(one, by) for one in thing]
        return None if None in each else each
    if isinstance(thing, dict):
        each = scaled(list(thing.values()), by)
        return each and dict(zip(thing, each))
    new = thing * by if finite(thing) else None
    return new if new is None or type(thing) is float else int(new) if new == int(new) else None


def besides(thing):
    """The same, with numbers that are a little larger, and a little smaller."""
    if type(thing) is int:
        return thing - 2, thing - 1, thing + 1, thing + 2
    both = [scaled(thing, 1 + by) for by in (-NEAR, NEAR)]
    return () if None in both or both[0] == thing else both


def alike(a, b):
    return near(a, b, 10 * NEAR * abs(a)) if finite(a) and finite(b) else close(a, b)


def near(a, b, within=0):
    return isclose(a, b, rel_tol=1e-6, abs_tol=within)


def still(numbers):
    """True or False; None: it changes by little, as numbers do that are rounded."""
    first, *others = numbers
    if all(each == first or (type(first) is float and near(each, first)) for each in others):
        return True
    coarse = 0.2 if type(first) is int else 1e-5
    return False if any(abs(each - first) > coarse * abs(first) for each in others) else None
