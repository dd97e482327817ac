"""Per-rank copies of process-wide library state (global variables and class attributes).

A place is written "package.module:Class.attribute". While a rank has the run lock, its own value is there
(rank_state.py). The table has those that are known; a program adds its own with ``launch(..., per_rank=[...])``.
"""

import sys
from collections import defaultdict
from copy import copy
from importlib import import_module
from operator import itemgetter


def nothing(value):
    """Where ``value`` could be, there is nothing: an empty dictionary, False or None."""
    return type(value)() if isinstance(value, dict | bool) else None


def shared(value):
    """What the kernel has, which ranks share until one changes it."""
    return copy(value)


HYDRAS_RUN = "GlobalHydra", "HydraConfig", "JobRuntime"


def registries(instances):
    """Of hydra's singletons those that its modules fill once, when they are imported; the others are a rank's own."""
    return {kind: each for kind, each in instances.items() if kind.__name__ not in HYDRAS_RUN}


# Where -> name -> what a rank begins with, given what the kernel has. It holds once that module is imported.
KNOWN = {
    # Hooks on all modules and all optimizers, which CommDebugMode and the like set for a while.
    "torch.nn.modules.module": {
        "_global_backward_hooks": copy,
        "_global_backward_pre_hooks": copy,
        "_global_forward_hooks": copy,
        "_global_forward_hooks_always_called": copy,
        "_global_forward_hooks_with_kwargs": copy,
        "_global_forward_pre_hooks": copy,
        "_global_is_full_backward_hook": copy,
    },
    "torch.optim.optimizer": {"_global_optimizer_post_hooks": copy, "_global_optimizer_pre_hooks": copy},
    "torch.utils._device": {"CURRENT_DEVICE": nothing},  # of `with torch.device(...)`
    "torch.autograd.profiler": {"_is_profiler_enabled": copy},
    # How DTensor treats operators, which `loss_parallel()` changes for a while.
    "torch.distributed.tensor:DTensor._op_dispatcher": {"_custom_op_handlers": shared},
    # Of `with warnings.catch_warnings()`, and what a script ignores.
    "warnings": {"filters": shared, "showwarning": shared, "_showwarnmsg_impl": shared},
    "builtins": {"print": shared},  # which scripts replace on all ranks but the first
    # Who this process is, and how many gradients it has accumulated.
    "accelerate.state:AcceleratorState": {"_shared_state": nothing},
    "accelerate.state:GradientState": {"_shared_state": nothing},
    "accelerate.state:PartialState": {"_shared_state": nothing},
    "hydra.core.singleton:Singleton": {"_instances": registries},
    "deepspeed.comm.comm": {"cdb": nothing},
    "deepspeed.utils.groups": {"_WORLD_GROUP": nothing},
    "transformers.integrations.deepspeed": {"_hf_deepspeed_config_weak_ref": nothing},
    "picotron.process_group_manager": {"process_group_manager": nothing},
}


def forget():
    """Reset what libraries cache about the process's rank to its initial value."""
    for where, names in KNOWN.items():
        owner = owner_of(where)
        for name in [name for name, begin in names.items() if owner is not None and begin is nothing]:
            setattr(owner, name, nothing(getattr(owner, name)))


class Home:
    """A module, class or object with per-rank attributes.

    Mostly there is nothing in those that are known (no hook, an empty dictionary), or what ranks share. Then they stay
    as they are when ranks take turns.
    """

    def __init__(self, owner, names, known):
        twice = 1 if len(names) > 1 else 2  # of one name alone an itemgetter would give no tuple
        self.owner, self.names = owner, twice * tuple(names)
        self.begin = twice * tuple(names.values())
        for name in self.names:
            if name not in vars(owner):
                setattr(owner, name, None)  # it is defined later
        self.space = vars(owner)
        self.values_in = itemgetter(*self.names)
        self.first = self.values_in(self.space)
        blank = [shared if begin is shared else nothing for begin in self.begin]
        self.blank = tuple([blank(value) for blank, value in zip(blank, self.first)]) if known else ()  # equal to none

    def fresh(self):
        """What a rank begins with."""
        if self.first == self.blank:
            return None
        values = tuple([begin(value) for begin, value in zip(self.begin, self.first)])
        return values if values != self.blank else None

    def put(self, values):
        if values is None:
            values = map(copy, self.blank)
        if type(self.space) is dict:
            self.space.update(zip(self.names, values))
        else:  # a class does not give away its dictionary
            for name, value in zip(self.names, values):
                setattr(self.owner, name, value)


class PerRankPlaces:
    """Those of one run: the known ones, and those that the program has ``named``."""

    def __init__(self, named=()):
        self.wanted = defaultdict(dict, {where: dict(names) for where, names in KNOWN.items()})
        self.named = set()
        for place in named:
            where, name = checked(place)
            self.wanted[where][name] = copy
            self.named.add(where)
        self.homes, self.blank, self.nothing = [], [], []
        self.left = []  # there is what the last rank had
        self.modules = 0  # imported when it was last looked

    def values(self):
        """What is there now, by home; None for nothing of one's own."""
        if len(sys.modules) != self.modules:
            self._look()
        found = [home.values_in(home.space) for home in self.homes]
        self.left = self.nothing
        if found != self.blank:  # one comparison, since ranks take turns all the time
            self.left = [values if values != home.blank else None for home, values in zip(self.homes, found)]
        return self.left

    def fresh(self):
        """What a rank begins with."""
        return [home.fresh() for home in self.homes]

    def put(self, values):
        if values == self.left == self.nothing:
            return
        for home, mine, left in zip(self.homes, values, self.left):
            if mine or left:
                home.put(mine)
        for home in self.homes[len(values) :]:  # imported since, by another rank
            home.put(home.fresh())

    def _look(self):
        self.modules = len(sys.modules)
        for where in list(self.wanted):
            owner = owner_of(where)
            if owner is not None:
                self.homes.append(Home(owner, self.wanted.pop(where), known=where not in self.named))
        self.blank, self.nothing = [home.blank for home in self.homes], [None] * len(self.homes)


def owner_of(where):
    """The module, class or object; None if it is not imported."""
    module, _, path = where.partition(":")
    owner = sys.modules.get(module)
    for step in path.split(".") if path else ():
        owner = getattr(owner, step, None)
    return owner


def checked(place):
    """(Where, name) of a place that a program names: it must be there, so that no mistyped one is passed over."""
    if not (isinstance(place, str) and all(place.partition(":"))):
        raise ValueError(f'launch: per_rank entries must have the form "package.module:Class.attribute", got {place!r}')
    module, _, path = place.partition(":")
    *path, name = path.split(".")
    import_module(module)
    where = ":".join([module, ".".join(path)] if path else [module])
    owner = owner_of(where)
    if owner is None or name not in vars(owner):
        raise ValueError(
            f"launch: per_rank names {place}, which is not found. If the program defines it later, set it to None first"
        )
    return where, name
