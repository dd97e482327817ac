"""ggml, the library under llama.cpp, for benchmarks: products with matrices in blocks, one after the other.

Called through ctypes, from the shared libraries that come with the package llama-cpp-python. ``repack=True`` asks for
what llama.cpp does when it loads a model: eight rows of some formats are interleaved (its buffer type CPU_REPACK).
"""

import ctypes
from pathlib import Path

import llama_cpp
import torch

from tinydist.quantization import Blocks

FOLDER = Path(llama_cpp.llama_cpp._lib._name).parent
P, INT, SIZE, FLOAT = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_float
CPU = 0  # a kind of device
CODES = {torch.float32: 0, torch.bfloat16: 30}


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", SIZE), ("mem_buffer", P), ("no_alloc", ctypes.c_bool)]


def library(name):
    suffix = "dylib" if (FOLDER / f"lib{name}.dylib").exists() else "so"
    return ctypes.CDLL(str(FOLDER / f"lib{name}.{suffix}"), mode=ctypes.RTLD_GLOBAL)


BASE, ENGINE, REGISTRY = (library(name) for name in ("ggml-base", "ggml-cpu", "ggml"))


def function(library, name, gives, *takes):
    found = getattr(library, name)
    found.restype, found.argtypes = gives, takes
    return found


init = function(BASE, "ggml_init", P, InitParams)
free = function(BASE, "ggml_free", None, P)
new_tensor = function(BASE, "ggml_new_tensor_2d", P, P, INT, ctypes.c_int64, ctypes.c_int64)
mul_mat = function(BASE, "ggml_mul_mat", P, P, P, P)
rms_norm = function(BASE, "ggml_rms_norm", P, P, P, FLOAT)
new_graph = function(BASE, "ggml_new_graph", P, P)
expand = function(BASE, "ggml_build_forward_expand", None, P, P)
alloc = function(BASE, "ggml_backend_alloc_ctx_tensors", P, P, P)
alloc_from = function(BASE, "ggml_backend_alloc_ctx_tensors_from_buft", P, P, P)
free_buffer = function(BASE, "ggml_backend_buffer_free", None, P)
free_backend = function(BASE, "ggml_backend_free", None, P)
tensor_set = function(BASE, "ggml_backend_tensor_set", None, P, P, SIZE, SIZE)
tensor_get = function(BASE, "ggml_backend_tensor_get", None, P, P, SIZE, SIZE)
compute = function(BASE, "ggml_backend_graph_compute", INT, P, P)
backend = function(ENGINE, "ggml_backend_cpu_init", P)
set_threads = function(ENGINE, "ggml_backend_cpu_set_n_threads", None, P, INT)
device_by_type = function(REGISTRY, "ggml_backend_dev_by_type", P, INT)
registry_of = function(BASE, "ggml_backend_dev_backend_reg", P, P)
address_of = function(BASE, "ggml_backend_reg_get_proc_address", P, P, ctypes.c_char_p)
name_of = function(BASE, "ggml_backend_buft_name", ctypes.c_char_p, P)


def repacking():
    """The buffer type that interleaves rows."""
    device = device_by_type(CPU)
    address = address_of(registry_of(device), b"ggml_backend_dev_get_extra_bufts")
    kinds = ctypes.CFUNCTYPE(ctypes.POINTER(P), P)(address)(device)
    for kind in iter_until_null(kinds):
        if name_of(kind) == b"CPU_REPACK":
            return kind
    raise RuntimeError("ggml was built without CPU_REPACK")


def iter_until_null(pointers):
    at = 0
    while pointers[at]:
        yield pointers[at]
        at += 1


class Chain:
    """``chain(x)``: x through ``layers``, [out, in] as ``Blocks`` or tensors, and divided by its RMS between them."""

    def __init__(self, layers, threads=1, repack=False):
        self.backend = backend()
        set_threads(self.backend, threads)
        self.weights, self.rest = (init(InitParams(2**20, None, True)) for _ in range(2))
        matrices = [new_tensor(self.weights, code(each), each.shape[1], each.shape[0]) for each in layers]
        self.x = new_tensor(self.rest, CODES[torch.float32], layers[0].shape[1], 1)
        y = self.x
        for matrix in matrices:
            y = rms_norm(self.rest, mul_mat(self.rest, matrix, y), 0.0)
        self.y, self.out = y, layers[-1].shape[0]
        self.graph = new_graph(self.rest)
        expand(self.graph, y)
        kind = alloc_from(self.weights, repacking()) if repack else alloc(self.weights, self.backend)
        self.buffers = [kind, alloc(self.rest, self.backend)]
        for matrix, each in zip(matrices, layers):
            data = each.data if isinstance(each, Blocks) else each.detach()
            tensor_set(matrix, data.contiguous().data_ptr(), 0, data.nbytes)

    def __call__(self, x):
        y = torch.empty(self.out)
        tensor_set(self.x, x.data_ptr(), 0, x.nbytes)
        compute(self.backend, self.graph)
        tensor_get(self.y, y.data_ptr(), 0, y.nbytes)
        return y

    def close(self):
        for buffer in self.buffers:
            free_buffer(buffer)
        for context in (self.weights, self.rest):
            free(context)
        free_backend(self.backend)


def code(layer):
    return layer.format.code if isinstance(layer, Blocks) else CODES[layer.dtype]
