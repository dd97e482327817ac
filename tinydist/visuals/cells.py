"""Whose numbers are in a cell: of which ranks, and which part.

A cell is a text, whose capital letters name ranks (A is rank 0), or a whole number, of which the digit with the value
10**r tells what is in of rank r: 300 is C3, 330 is BC3, 3333 of four ranks is Σ3.
"""

from string import ascii_uppercase as LETTERS

from ..rules import finite, is_tensor


def in_letters(cell):
    """The text of a cell: 330 is BC3, and 340, in which different parts are mixed, is B4C3."""
    if isinstance(cell, str):
        return cell
    value = cell.item() if is_tensor(cell) else cell
    if not (finite(value) and value >= 0 and value % 1 == 0):
        raise ValueError(f"steps: a cell is a text or an integer >= 0, got {value}")
    parts = [(LETTERS[rank], digit) for rank, digit in enumerate(reversed(str(int(value)))) if digit != "0"]
    if len({digit for _, digit in parts}) == 1:
        return "".join(letter for letter, _ in parts) + parts[0][1]
    return "".join(letter + digit for letter, digit in parts)


def letters_in(cell):
    return [letter for letter in cell if letter in LETTERS]


def ranks_in(cell):
    return [LETTERS.index(letter) for letter in letters_in(cell)]


def texts_of(cell, ranks):
    """What is written, and what if there is less room: Σ if all ranks are in, else who, or how many."""
    letters = "".join(letters_in(cell))
    if ranks > 1 and set(LETTERS[:ranks]).issubset(letters):
        return "Σ" + cell.strip(LETTERS), "Σ", "Σ"
    return cell, letters or cell, f"{len(letters)}/{ranks}" if len(letters) > 1 else letters or cell
