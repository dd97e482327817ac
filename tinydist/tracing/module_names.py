"""Qualified names of modules and parameters, such as "blocks.3.mlp.weight", known when the model is built."""

from weakref import ref

import torch

WRAPPERS = {"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"}  # torch's, inside of a name


class ModuleName(ref):
    """A module or a parameter: a weak reference to it, and its name, which outlives it.

    The name is known when all is built: ``str(name)``, "blocks.3.mlp.weight".
    """

    __slots__ = ("address", "is_known", "name", "nbytes", "owner")
    __hash__, __eq__ = object.__hash__, object.__eq__  # not those of what it refers to

    def belong_to(self, owner, name):
        """The first owner counts: a stage of a pipeline takes layers from a model that has named them."""
        if self.owner is None and self not in owner.path():
            self.owner, self.name = owner, name

    def path(self):
        """From here to the outermost."""
        part = self
        while part is not None:
            yield part
            part = part.owner

    def __str__(self):
        names = [part.name for part in self.path()][-2::-1]
        while names[:1] == ["module"]:  # as DDP and others name what they wrap
            del names[0]
        return ".".join([name for name in names if name not in WRAPPERS])


class ModuleNames:
    """Those of all ranks."""

    def __init__(self):
        self.known = {}  # address of a module or a parameter -> ModuleName

    def find(self, thing):
        return self.known.get(id(thing))

    def of(self, thing):
        address = id(thing)
        part = self.known.get(address)
        if part is None:
            part = self.known[address] = ModuleName(thing, self._gone)
            part.address, part.owner, part.name = address, None, ""
            part.nbytes = 0  # of a parameter, whole
            part.is_known = False  # has everything in a module been looked at?
        return part

    def _gone(self, part):
        del self.known[part.address]  # which is free for another

    def own(self, owner, name, child):
        """A module has another one, or a tensor, under that name; or None, where there could be one."""
        if child is None:
            return
        part = self.of(child)
        part.belong_to(self.of(owner), name)
        if isinstance(child, torch.Tensor):
            part.nbytes = child.numel() * child.itemsize

    def own_stage(self, pipeline, number, module):
        """A stage of a pipeline: modules made for one stage each would else all have the same names."""
        self.of(module).belong_to(self.of(pipeline), f"stage {number}")
