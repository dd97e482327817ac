"""The norm of a whole model, of which some is cut, some is copied, and one weight is in two stages."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tinydist.lab.author import Bytes, Case, Varied, Wrong, draw_traffic, exercise, mistake

from .chapter import NO_ENGINE, numbers

COPIED = '"copied": 1 / t'
TIED = '"tied": 1 if stage == 0 else 0'
TP_SUM = '    dist.all_reduce(square, group=mesh["tp"].get_group())\n'
PP_SUM = '    dist.all_reduce(square, group=mesh["pp"].get_group())\n'


def case(pp, dp, tp, max_norm=0.5, dtype=torch.float32):
    about = f"pp {pp} x dp {dp} x tp {tp}, max_norm={max_norm:g}" + ", float64" * (dtype == torch.float64)
    return Case(pp * dp * tp, lambda rank: (pp, dp, tp, max_norm, dtype), about)


def test_cases():
    yield case(2, 1, 2)
    yield case(1, 1, 2)
    yield case(1, 3, 1)
    yield case(1, 1, 3, 1e9)
    yield case(2, 2, 2)
    yield case(3, 1, 2, 0.5, torch.float64)
    yield case(1, 1, 1)


def clipped(answer, pp, dp, tp, max_norm, dtype):
    """A stage has a weight that is cut, two that are copied, and the ends of the pipeline the tied one."""
    mesh = init_device_mesh("cpu", (pp, dp, tp), mesh_dim_names=("pp", "dp", "tp"))
    stage, _, part = mesh.get_coordinate()
    gradients = [(numbers(3 + stage, 4, seed=10 * stage + part, dtype=dtype), "cut")]
    for number in range(2):
        gradients.append((numbers(5, seed=100 + 10 * stage + number, dtype=dtype), "copied"))
    if stage in (0, pp - 1):
        gradients.append((numbers(2, 6, seed=200 + part, dtype=dtype), "tied"))
    norm = answer(list(gradients), max_norm, mesh)
    if not isinstance(norm, torch.Tensor | float | int):
        raise Wrong(f"on rank {dist.get_rank()} it returned a {type(norm).__name__}, where the norm is right")
    after = {f"the {kind} gradient, number {place}": each for place, (each, kind) in enumerate(gradients)}
    return {"the norm": torch.as_tensor(norm, dtype=dtype), **after}


class Few(Bytes):
    def judge(self, exercise, trial, right):
        enough = 2 * 2 * trial.arguments[0][-1].itemsize  # of a ring, however large
        for rank, have in enumerate(self.seen(trial)):
            if have > enough:
                words = f"rank {rank} sends {have:,.0f} bytes, where {enough} are enough: {self.formula}"
                raise Wrong(words, draw_traffic(trial))


@exercise(
    title="One norm for the whole model",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    program=clipped,
    check_communication=False,  # right ways differ in what they send: copies count 1/t each, or in one place
    targets=[
        NO_ENGINE,
        Varied(
            "the norm that one process has, on every rank, and the gradients clipped by it; 1 to 8 ranks",
            variants=[
                ("What is copied is left out, and it is a part of the model: it counts once", COPIED, '"copied": 0'),
                ("The tied weight is left out, and it is a part of the model: it counts once", TIED, '"tied": 0'),
                (
                    "The tied weight counts in the second stage alone, which a pipeline of one stage has not: count "
                    "it in "
                    "the first, or half in each end",
                    "1 if stage == 0",
                    "1 if stage == 1",
                ),
                (
                    "The tied weight is left out where the pipeline has one stage: it counts once there, too",
                    TIED,
                    '"tied": 0.5',
                ),
                (
                    "Copies are divided by all ranks: t ranks of a tensor group have the same",
                    COPIED,
                    '"copied": 1 / dist.get_world_size()',
                ),
                (
                    "Copies are divided by the number of stages: t ranks of a tensor group have the same",
                    COPIED,
                    '"copied": 1 / mesh["pp"].size()',
                ),
                ("What is cut is divided by t: each part is another one, and counts whole", '"cut": 1', '"cut": 1 / t'),
                (
                    "Norms are added up: add their squares, and take the root of the sum",
                    "gradient.square().sum()",
                    "gradient.norm()",
                    "norm = square.sqrt()",
                    "norm = square",
                ),
                (
                    "The norms of the ranks are added up: add their squares, and take the root of the sum",
                    "for gradient, kind in gradients)",
                    "for gradient, kind in gradients).sqrt()",
                    "norm = square.sqrt()",
                    "norm = square",
                ),
                (
                    "This is the largest along tp, and not the sum: the squares of all parts add up",
                    'group=mesh["tp"].get_group())',
                    'op=dist.ReduceOp.MAX, group=mesh["tp"].get_group())',
                ),
                ("This is the square of the norm: its root is missing", "norm = square.sqrt()", "norm = square"),
                (
                    "This is the norm after clipping: the one before it is asked for",
                    "return norm",
                    "return norm * factor",
                ),
                (
                    "Each gradient is clipped by its own norm: one factor, of the norm of all, is for the whole model",
                    "gradient *= factor",
                    "gradient *= min(1.0, max_norm / float(gradient.norm()))",
                ),
                (
                    "The norm is right, and the gradients are as before: multiply them, in place",
                    "gradient *= factor",
                    "pass",
                ),
                (
                    "This is the mean over the ranks, and not the sum of squares",
                    "norm = square.sqrt()",
                    'norm = (square / (t * mesh["pp"].size())).sqrt()',
                ),
                (
                    "The numbers are added up, and not their squares",
                    "gradient.square().sum()",
                    "gradient.sum()",
                    "norm = square.sqrt()",
                    "norm = square.abs()",
                ),
                (
                    "The factor is the wrong way round: max_norm over the norm",
                    "max_norm / float(norm)",
                    "float(norm) / max_norm",
                ),
                (
                    "Each rank clips by the norm of its own gradients: the norm is one, of the whole model",
                    "max_norm / float(norm))",
                    "max_norm / float(torch.cat([g.flatten() for g, _ in gradients]).norm()))",
                ),
            ],
        ),
        Few("two all-reduces of one number, or fewer bytes"),
    ],
    mistakes=[
        mistake(
            "What is copied counts once for each rank of the tensor group, and it is one parameter: each of t copies "
            "counts 1/t",
            COPIED,
            '"copied": 1',
        ),
        mistake(
            "The tied weight counts twice, once in each of its two stages: it is one parameter",
            TIED,
            '"tied": 1',
        ),
        mistake(
            "The tied weight is in two stages, however many the pipeline has, so 1/pp in each of them is right for two "
            "stages alone: it counts 1 in the first stage and 0 in the last, or half in each",
            TIED,
            '"tied": 1 / mesh["pp"].size()',
        ),
        mistake("This is the norm of one stage. The other stages have gradients, too", PP_SUM, ""),
        mistake(
            "This is the norm of one part of each matrix. The others of its tensor group have parts, too", TP_SUM, ""
        ),
        mistake(
            "The norm is sqrt(dp) times too large, as if squares were added up over replicas, too: they have the same "
            "gradients, of the same model, and one replica counts",
            PP_SUM,
            PP_SUM + '    dist.all_reduce(square, group=mesh["dp"].get_group())\n',
        ),
        mistake(
            "Two rules are missing: what is copied along tp is one parameter, and counts 1/t on each of t ranks; and "
            "the tied weight is one parameter in two stages",
            COPIED,
            '"copied": 1',
            TIED,
            '"tied": 1',
        ),
        mistake(
            "Gradients that are short enough stay as they are: the factor is 1 at most",
            "min(1.0, max_norm / float(norm))",
            "max_norm / float(norm)",
        ),
    ],
    hints=[
        "Take a mesh of 2 x 2 x 2 and ask of each kind: on how many of the eight ranks are its numbers?",
        "Along dp all ranks have the same, so the sum goes along tp and pp. What is in several places along those two "
        "must count once in all.",
        "Each rank multiplies its squares: parts by 1, copies by 1/t, the tied weight by 1 in the first stage and by 0 "
        "elsewhere. Then two all-reduces of one number, the root, and the factor.",
    ],
    why="With a norm that depends on the mesh, the same run on other GPUs takes other steps, and nobody can say why. "
    "Megatron-LM asks param_is_not_tensor_parallel_duplicate and param_is_not_shared of each parameter for this.",
)
def clip(gradients, max_norm, mesh):
    """Clip the gradients of a whole model, of which each rank has some: multiply all by one factor, in place, so that
    their norm is ``max_norm`` at most. Return the norm before, the same on all ranks.

    ``mesh`` has the axes pp, dp and tp: ``mesh["tp"].get_group()`` and ``mesh["pp"].get_local_rank()`` and so on.
    ``gradients`` is a list of (tensor, kind). They are averaged over dp already, so replicas have the same. A kind is
    "cut": this rank's part of it, one of t along tp; "copied": all ranks along tp have the same; or "tied": cut along
    tp, and the same parameter in the first and in the last stage, which both have its whole gradient.
    """
    # ? What does each kind count on this rank? Along which axes are the squares added up?
    t, stage = mesh["tp"].size(), mesh["pp"].get_local_rank()
    weights = {"cut": 1, "copied": 1 / t, "tied": 1 if stage == 0 else 0}
    square = sum(weights[kind] * gradient.square().sum() for gradient, kind in gradients)
    dist.all_reduce(square, group=mesh["tp"].get_group())
    dist.all_reduce(square, group=mesh["pp"].get_group())
    norm = square.sqrt()
    factor = min(1.0, max_norm / float(norm))
    for gradient, _ in gradients:
        gradient *= factor
    return norm
