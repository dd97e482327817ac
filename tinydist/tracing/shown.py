"""A part of a trace, of which a notebook shows a picture."""


class Shown(list):
    def __init__(self, trace, items):
        super().__init__(items)
        self.trace = trace
