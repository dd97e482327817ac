"""Has the learner begun? A function that says what the stub says gets "not yet".

Comments, blank lines and the docstring may differ: the syntax trees are compared. So it also holds for a stub that is a
whole program with bugs in it. (Code objects would not do: Python compiles a call of an imported module's function in
another way if the import stands in the same file.)
"""

import ast
import inspect
import textwrap


def untouched(answer, stub):
    """``stub``: its text."""
    try:
        return body_of(inspect.getsource(answer)) == body_of(stub)
    except (OSError, TypeError, SyntaxError):  # it has no text: then it is not from a notebook
        return False


def body_of(text):
    (tree,) = ast.parse(textwrap.dedent(text)).body
    body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
    return ast.dump(tree.args), [ast.dump(statement) for statement in body]
