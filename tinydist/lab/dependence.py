"""What a wrong number has to do with the arguments: it is the right one times some of them, or lacks a product of them,
or would be right if one of them were another.

The answer runs with one argument after another scaled; so does the reference.
"""

import inspect
from contextlib import suppress
from fractions import Fraction
from math import isclose, isfinite

from .differences import close
from .leaves import leaves

WHOLE, FEW, FAR = ((2, 4), (1 / 2, 1 / 4)), ((1.01, 1.03), (1 / 2, 1 / 4)), (64, 1 / 64)  # scales
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
    """``path``: of the number that is wrong, among the leaves that a run returns; None, where all are words."""

    def __init__(self, exercise, trial, path, results):
        self.exercise, self.trial, self.path, self.results = exercise, trial, path, results
        self.given, self.mine = trial.case.arguments(0), leaves(trial.returned[0], results)
        of = exercise.program if len(inspect.signature(exercise.program).parameters) > 2 else exercise.reference
        names = [f"`{name}`" for name in inspect.signature(of).parameters]
        self.names = names[-len(self.given) :]
        self.here = self.pair(self.given)
        self.whole = self.here and all(type(each) is int for each in self.here)
        self.found = {}  # name -> [(scales, pairs)]
        for place, name in enumerate(self.names) if self.here else ():
            scales = WHOLE if self.whole or whole(self.given[place]) else FEW
            runs = [(each, [self.pair(self.scaled(place, by)) for by in each]) for each in scales]
            self.found[name] = [(each, pairs) for each, pairs in runs if all(pairs)]
        self.found = {name: found for name, found in self.found.items() if found}
        self.pairs = [self.here, *(pair for found in self.found.values() for pair in found[0][1])]

    def scaled(self, place, by):
        new = scaled(self.given[place], by)
        return None if new is None or new == self.given[place] else self.with_(self.given, place, new)

    def with_(self, given, place, new):
        return (*given[:place], new, *given[place + 1 :])

    def pair(self, arguments):
        """What the answer makes of them, and what is right; None, where one of them is no number."""
        its = self.right(arguments) if arguments and self.path is not None else None
        mine = self.answer(arguments) if its else None
        both = tuple(each.get(self.path) for each in (mine or {}, its or {}))
        return both if all(map(finite, both)) else None

    def answer(self, arguments):
        run = self.trial.again(watched=True, arguments=lambda rank: arguments)
        return None if run.error else leaves(run.returned[0], self.results)

    def right(self, arguments):
        with suppress(Exception):
            return leaves(self.exercise.program(self.exercise.reference, *arguments), self.results)

    def reason(self):
        looks = (self.times, self.lacks, self.one_off, self.idle, self.as_if, self.follows)
        return next(filter(None, (look() for look in (looks if self.found else looks[4:5]))), "")

    def times(self):
        """It is the right number times something."""
        if not all(its and mine for mine, its in self.pairs) or min(map(abs, self.here)) < 50 * self.whole:
            return ""
        if self.whole and any(self.here[0] in each for each in self.given if isinstance(each, list | dict)):
            return ""  # chosen among them, not computed
        many = Fraction(self.here[0] / self.here[1]).limit_denominator(9)
        many = many or Fraction(1, round(self.here[1] / self.here[0]))
        if many == -1 and all(near(mine, -its) for mine, its in self.pairs):
            return "It has the wrong sign"
        if many != 1 and all(near(mine, its * many, self.whole * (1 + float(many))) for mine, its in self.pairs):
            wrong = "is it in another unit?" if many > 999 or many < 1e-3 else "a constant in it is wrong"
            shown = f"{many.numerator:,}" + f"/{many.denominator:,}" * (many.denominator > 1)
            return f"It is {shown} times what is right, whatever the arguments are: {wrong}"
        found = self.product(lambda mine, its: mine / its, 2 / min(self.here) if self.whole else 0)
        return f"It is what is right times {found[0] or ''}{found[1]}" if found and found[0] is not None else ""

    def lacks(self):
        """What it has too much, or too little, is a product of arguments."""
        off = [mine - its for mine, its in self.pairs]
        if max(map(abs, off)) <= 1 * self.whole or abs(off[0]) < 1e-7 * max(map(abs, self.here)):
            return ""
        found, more = self.product(lambda mine, its: mine - its), off[0] > 0
        if found and found[0] is not None:
            return f"It {'has too much' if more else 'lacks'}: {found[0]}{found[1]}"
        return f"What it {'has too much' if more else 'lacks'} grows as {found[1]}" if found else ""

    def product(self, of, within=0):
        """(factor, text) of numbers that grow as a product of arguments does. The factor is None if it is odd."""
        above, below, first = [], [], of(*self.here)
        left = abs(first)
        for place, name in enumerate(self.names):
            old, words = self.given[place], None
            tried = self.found.get(name, [((), ())])
            if self.whole:  # rounded numbers are soon alike by chance
                tried = [tuple(sum(each, start=type(each[0])()) for each in zip(*tried))]
            for scales, pairs in tried:
                each = [of(*pair) / first for pair in pairs]
                power = [d for d in (0, 1, -1, 2, -2, 3) if all(near(b, t**d, within) for b, t in zip(each, scales))]
                forms = [
                    (words, form)
                    for words, form in (FORMS.items() if type(old) is int and old > 1 else ())
                    if all(n > 1 and near(b, form(n * old) / form(old), within) for b, n in zip(each, scales))
                ]
                if power:
                    (above if power[0] > 0 else below).extend(
                        [name + " ²³"[abs(power[0]) - 1].strip()] * bool(power[0])
                    )
                    left = left if not power[0] or left is None else left / old ** power[0] if finite(old) else None
                elif forms:
                    above.append(forms[0][0].format(name))
                    left = left and left / forms[0][1](old)
                words = power or forms
                if words:
                    break
            if not words:
                return None
        if not above and not below:
            return None
        count = left and Fraction(left).limit_denominator(9)
        odd = not count or not near(left, float(count), within) or count.numerator > 1000
        shown = "" if count == 1 and above else f"{count} " if above else f"{count}"
        above = above or ["1"] * odd
        return None if odd else shown, " ".join(above) + "".join(f" / {each}" for each in below)

    def one_off(self):
        off = {mine - its for mine, its in self.pairs} if self.whole else ()
        more = "more" if 1 in off else "less"
        if off in ({1}, {-1}):
            return f"It is one {more} than is right, also with other arguments"
        if off in ({1, 0}, {-1, 0}):
            return (
                f"It is one {more} than is right, and with other arguments it may be right: look at <, <= and rounding"
            )
        return ""

    def idle(self):
        """Arguments that do not count, or that should not."""
        idle, moved, others = [], [], []
        for name, found in self.found.items():
            far = [self.pair(self.scaled(self.names.index(name), by)) for by in FAR]
            mine, its = (list(side) for side in zip(self.here, *found[0][1], *filter(None, far)))
            by_little = 1 + len(found[0][1])
            sides = still(mine), still(its[:by_little]), still(mine[:by_little]), still(its)
            idle += [name] if sides[:2] == (True, False) else []
            moved += [name] if sides[2:] == (False, True) else []
            others += [] if self.keeps_off(mine, its) else [name]
        if idle and set(others) <= set(idle) and self.here[0] and len(idle) < len(self.found):
            return f"It stays the same if {told(idle)} {'is' if len(idle) == 1 else 'are'} changed, and should not"
        return f"It changes with {told(moved)}, and should not" if moved and not self.whole else ""

    def keeps_off(self, mine, its):
        """Is it as far off, or as many times too large, whatever this argument is?"""
        rounded = self.whole * 4 * max(map(abs, (*mine, *its)))
        times = all(near(a * its[0], b * mine[0], rounded) for a, b in zip(mine, its))
        return times or all(near(a - b, mine[0] - its[0], 2 * self.whole) for a, b in zip(mine, its))

    def as_if(self):
        """It would be right if one argument were another."""
        cases = [each for each in self.exercise.cases if each is not self.trial.case][:6]
        others, mine, ways = [each.arguments(0) for each in cases], None, []
        for place, name in enumerate(self.names):
            if not finite(self.given[place]):
                continue
            takes = [(words, lambda each, at=place, way=way: way(each[at])) for words, way in IF.items()]
            takes += [
                (f"as large as {other}", lambda each, at=at: each[at])
                for at, other in enumerate(self.names)
                if finite(self.given[at]) and 1e-3 < abs(self.given[at] / (self.given[place] or 1)) < 1e3
            ]
            for words, way in takes:
                if self.same(self.mine, self.given, place, way):
                    mine = mine or list(map(self.answer, others))
                    if all(self.same(a, each, place, way) is not False for a, each in zip(mine, others)):
                        ways.append(f"{name} were {words}")
        return f"This would be right if {', or '.join(ways)}" if 0 < len(ways) < 4 else ""

    def same(self, mine, given, place, way):
        """None: it cannot be told, as the argument is the same."""
        new = way(given) if finite(given[place]) else None
        if not finite(new) or new == given[place]:
            return None
        its = self.right(self.with_(given, place, new))
        return bool(mine and its) and mine.keys() == its.keys() and all(alike(mine[key], its[key]) for key in its)

    def follows(self):
        """Which arguments it follows as it should, and which not."""
        moved = {name: found[0][1] for name, found in self.found.items() if any(p != self.here for p in found[0][1])}
        off = self.here[0] - self.here[1]
        right = [name for name, pairs in moved.items() if all(near(mine - its, off) for mine, its in pairs)]
        wrong = [name for name in moved if name not in right]
        if not right or not wrong:
            return ""
        return f"It grows with {told(right)} as it should. What is wrong depends on {told(wrong)}"


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


def near(a, b, within=0):
    return isclose(a, b, rel_tol=1e-6, abs_tol=within)


def alike(a, b):
    return near(a, b) if finite(a) and finite(b) else close(a, b)


def still(numbers):
    """True or False; None: it changes by little, as numbers do that are rounded."""
    first, *others = numbers
    if all(each == first or (type(first) is float and near(each, first)) for each in others):
        return True
    coarse = 0.2 if type(first) is int else 1e-5
    return False if any(abs(each - first) > coarse * abs(first) for each in others) else None


def told(names):
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
