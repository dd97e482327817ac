"""The output of a rank that is not shown: ``--local-ranks-filter``."""

import io


class Silence(io.TextIOBase):
    encoding = "utf-8"

    def writable(self):
        return True

    def write(self, text):
        return len(text)

    def reconfigure(self, **_):
        pass
