"""A cluster inside one process: a backend of torch.distributed whose ranks are threads, one at a time."""
