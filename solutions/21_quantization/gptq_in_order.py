"""One row by GPTQ, the columns that count most first."""

import torch

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import INSTEAD, SOLVED, numbers


def case(n, about, step=0.5, spread=1.0):
    def arguments():
        mixed = numbers(n, n, seed=n, dtype=torch.float64)
        sizes = torch.linspace(0, 1, n, dtype=torch.float64) * torch.tensor([1.0, -1.0]).repeat(n)[:n]
        x = numbers(4 * n, n, seed=n + 1, dtype=torch.float64) @ (mixed / n**0.5 + torch.eye(n)) * spread**sizes
        return numbers(n, seed=n + 2, dtype=torch.float64), x.T @ x + torch.eye(n, dtype=torch.float64), step

    return alone(arguments, f"{n} columns, {about}")


def test_cases():
    yield case(1, "alone")
    yield case(2, "two that are alike", step=1.0)
    yield case(8, "inputs of one size")
    yield case(24, "inputs of very different size", spread=10.0)
    yield case(64, "a fine grid", step=0.1, spread=3.0)


@exercise(
    title="A row by GPTQ, in a better order",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own GPTQ", INSTEAD, SOLVED),
        Values("the rounded row, where it was; 1 to 64 columns, inputs of one size and of very different sizes"),
    ],
    mistakes=[
        mistake(
            "Columns are rounded in descending order of G's diagonal, not from left to right",
            "G.diagonal().argsort(descending=True)",
            "torch.arange(len(w))",
        ),
        mistake(
            "The columns that meet the largest inputs go first, as long as many others can make up for them",
            "descending=True",
            "descending=False",
        ),
        mistake("The row goes back to the order it came in", "found[order] = rounded", "found[:] = rounded"),
        mistake(
            "order[i] says where column i came from: to go back, write to those places and do not read from them",
            "found[order] = rounded",
            "found[:] = rounded[order]",
        ),
        mistake(
            "What later columns change is the error divided by the diagonal of U, times U's row",
            "(w[i] - rounded[i]) / upper[i, i]",
            "w[i] - rounded[i]",
        ),
        mistake("It is the factor of the inverse of G that is asked for", "torch.linalg.inv(G)", "G"),
        mistake(
            "Round the weight as it is after the changes, not as it was",
            "torch.round(w[i] / step)",
            "torch.round(was[i] / step)",
            "rounded = torch.empty_like(w)",
            "rounded, was = torch.empty_like(w), w.clone()",
        ),
        mistake(
            "Rows and columns of G are put in the same order as the weights",
            "G[order][:, order]",
            "G",
        ),
    ],
    hints=[
        "First an order: the diagonal of G says how large the inputs of a column are. Put w and G in it.",
        "With U, upper triangular and U^T U the inverse of G: round column i, divide its error by U[i, i], and "
        "subtract that times U[i, i+1:] from the later ones.",
        "order = G.diagonal().argsort(descending=True); at the end found[order] = rounded.",
    ],
    why="The last column has nobody left to make up for it, so let it be one that hardly counts. This order is an "
    "option of GPTQ's implementations (act-order, desc_act). It has a price: with groups, weights of a group no longer "
    "lie side by side, and a kernel has to look up each one's scale.",
)
def gptq_in_order(w, G, step):
    """Return ``w`` [n], float64, rounded to multiples of ``step`` by GPTQ.

    ``G`` [n, n], float64, is X^T X, already damped. Columns are rounded in descending order of G's diagonal, and after
    each the later ones change so that the output changes least. There are no groups, and any multiple of ``step`` is
    allowed. The result is in the order of ``w``, which stays as it is.
    """
    # ? The order, and everything in it.
    order = G.diagonal().argsort(descending=True)
    w, G = w[order], G[order][:, order]
    # ? Round one after the other.
    upper = torch.linalg.cholesky(torch.linalg.inv(G), upper=True)
    rounded = torch.empty_like(w)
    for i in range(len(w)):
        rounded[i] = torch.round(w[i] / step) * step
        error = (w[i] - rounded[i]) / upper[i, i]
        w[i + 1 :] -= error * upper[i, i + 1 :]
    # ? And back.
    found = torch.empty_like(w)
    found[order] = rounded
    return found
