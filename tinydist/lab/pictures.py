"""Pictures of what is wrong: each is a function that draws it, since matplotlib takes its time to load."""


def draw_traffic(trial):
    return lambda: drawn("traffic", trial.run)


def draw_memory(trial, rank):
    return lambda: drawn("memory", trial.run, rank)


def draw_timeline(trial, cluster):
    return lambda: drawn("timeline", trial.run.on(cluster))


def drawn(name, *arguments):
    from .. import visuals

    return getattr(visuals, name)(*arguments)
