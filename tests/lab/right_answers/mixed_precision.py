"""Other right answers to the exercises of 04_mixed_precision: they must pass."""

from lab.registered import others

RIGHT_ANSWERS, right = others()


# training_bytes


@right("training_bytes")
def in_bits(recipe, n):
    """A format's bits stand in its name, but for the b of bf16."""

    def nbytes(format):
        return int("".join(filter(str.isdigit, format))) // 8

    kept = ["SGD", "momentum", "Adam"].index(recipe.optimizer)
    blocks = -(-n // 256) if recipe.moments == "8 bit" else 0
    return {
        "optimizer states": kept * (n * nbytes(recipe.moments) + 4 * blocks) + (4 * n if recipe.master else 0),
        "gradients": sum(n * nbytes(format) for format in recipe.gradients),
        "parameters": n * nbytes(recipe.weights),
    }


@right("training_bytes")
def as_floats(recipe, n):
    held = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "8 bit": 1 + 4 / 256}
    states = {"SGD": 0.0, "momentum": 1.0, "Adam": 2.0}[recipe.optimizer] * held[recipe.moments] + 4.0 * recipe.master
    found = dict(parameters=held[recipe.weights], gradients=sum(map(held.get, recipe.gradients)))
    return {purpose: each * n for purpose, each in {**found, "optimizer states": states}.items()}


@right("training_bytes")
def by_torch(recipe, n):
    """Sizes by asking torch for a number of each format."""
    import torch

    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "8 bit": torch.int8}
    size = {name: dtype.itemsize for name, dtype in dtypes.items()}
    states = 0
    if recipe.master:
        states += n * size["fp32"]
    if recipe.optimizer != "SGD":
        for _ in range(1 + (recipe.optimizer == "Adam")):
            states += n * size[recipe.moments]
            if recipe.moments == "8 bit":
                states += n * size["fp32"] // 256
    return {
        "parameters": n * size[recipe.weights],
        "gradients": sum(n * size[each] for each in recipe.gradients),
        "optimizer states": states,
    }
