"""A product that reads blocks and writes no weight: LLVM IR, compiled for this processor. Q4_0 and Q8_0.

    for each row of w, for each block:     32 codes times 32 of x, in integers of 16 bits; sums of four products, in 32
                                           times d_w d_x, in fp32, added up in 8 lanes

    bytes read: those of the blocks        FLOPs for each byte: 2 / (bits / 8), 3.6 with Q4_0, half of one in fp32

So what takes longest should be the reading. Unpacking costs instructions, though: for Q4_0 an AND, a shift and two
subtractions for 32 weights. Neighbors of a product are added in pairs since processors have an instruction for that
(VPMADDWD), which LLVM finds. x stays in 8 bits and is widened for each row: in 16 bits it is slower where weights come
from memory (benchmarks/size_of_x.py). The rows are dealt out to ``torch.get_num_threads()`` threads. Needs llvmlite.
Like ggml_vec_dot_q4_0_q8_0 (ggml-org/llama.cpp, ggml/src/ggml-cpu/arch/x86/quants.c, read at 47b0c4b), which has
intrinsics.
"""

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch

from ..rules import floats, validate
from .blocks import Blocks, quantize


def lanes(first):
    """A mask: every second of 16."""
    return f"<8 x i32> <{', '.join(f'i32 {lane}' for lane in range(first, 16, 2))}>"


CODES = {  # of a block at %codes: 32 numbers of 16 bits, as %low and %high
    "Q8_0": """
  %first = load <16 x i8>, ptr %codes, align 1
  %upper = getelementptr i8, ptr %codes, i64 16
  %second = load <16 x i8>, ptr %upper, align 1
  %low = sext <16 x i8> %first to <16 x i16>
  %high = sext <16 x i8> %second to <16 x i16>""",
    "Q4_0": """
  %nibbles = load <16 x i8>, ptr %codes, align 1
  %both = zext <16 x i8> %nibbles to <16 x i16>
  %first = and <16 x i16> %both, splat (i16 15)
  %second = lshr <16 x i16> %both, splat (i16 4)
  %low = sub <16 x i16> %first, splat (i16 8)
  %high = sub <16 x i16> %second, splat (i16 8)""",
}
PAIRS = f"""
  %NAME.32 = sext <16 x i16> %NAME to <16 x i32>
  %NAME.x.32 = sext <16 x i8> %NAME.x to <16 x i32>
  %NAME.products = mul nsw <16 x i32> %NAME.32, %NAME.x.32
  %NAME.even = shufflevector <16 x i32> %NAME.products, <16 x i32> poison, {lanes(0)}
  %NAME.odd = shufflevector <16 x i32> %NAME.products, <16 x i32> poison, {lanes(1)}
  %NAME.pairs = add nsw <8 x i32> %NAME.even, %NAME.odd"""
SOURCE = """
declare float @llvm.vector.reduce.fadd.v8f32(float, <8 x float>)

define void @matvec(ptr noalias %w, ptr noalias %x, ptr noalias %scales, ptr noalias %y, i64 %rows, i64 %blocks) {
entry:
  br label %row
row:
  %n = phi i64 [0, %entry], [%n.next, %end]
  %first.block = mul i64 %n, %blocks
  br label %block
block:
  %b = phi i64 [0, %row], [%b.next, %block]
  %sum = phi <8 x float> [zeroinitializer, %row], [%sum.next, %block]

  %place = add i64 %first.block, %b
  %offset = mul i64 %place, NBYTES
  %d = getelementptr i8, ptr %w, i64 %offset
  %d.fp16 = load half, ptr %d, align 1
  %d.fp32 = fpext half %d.fp16 to float
  %codes = getelementptr i8, ptr %d, i64 2CODES
  %x.offset = mul i64 %b, 32
  %x.low = getelementptr i8, ptr %x, i64 %x.offset
  %x.high = getelementptr i8, ptr %x.low, i64 16
  %low.x = load <16 x i8>, ptr %x.low, align 1
  %high.x = load <16 x i8>, ptr %x.high, align 1

PAIRS
  %product = add <8 x i32> %low.pairs, %high.pairs
  %product.fp32 = sitofp <8 x i32> %product to <8 x float>

  %scale.x = getelementptr float, ptr %scales, i64 %b
  %d.x = load float, ptr %scale.x, align 4
  %scale = fmul float %d.fp32, %d.x
  %one = insertelement <8 x float> poison, float %scale, i64 0
  %all = shufflevector <8 x float> %one, <8 x float> poison, <8 x i32> zeroinitializer
  %scaled = fmul contract <8 x float> %product.fp32, %all
  %sum.next = fadd contract <8 x float> %sum, %scaled

  %b.next = add i64 %b, 1
  %more = icmp ult i64 %b.next, %blocks
  br i1 %more, label %block, label %end
end:
  %total = call reassoc float @llvm.vector.reduce.fadd.v8f32(float 0.0, <8 x float> %sum.next)
  %y.n = getelementptr float, ptr %y, i64 %n
  store float %total, ptr %y.n, align 4
  %n.next = add i64 %n, 1
  %again = icmp ult i64 %n.next, %rows
  br i1 %again, label %row, label %done
done:
  ret void
}
"""


@validate(x=floats, weight=Blocks)
def matvec(x, weight):
    """As ``matmul``: x [..., in] times blocks [out, in], one row of x after the other, for a few rows."""
    if weight.format.name not in CODES:
        raise ValueError(f"matvec: weight must be in {' or '.join(CODES)}, got {weight.format}")
    if len(weight.shape) != 2 or x.ndim == 0 or x.shape[-1] != weight.shape[1]:
        raise ValueError(f"matvec: expected [..., in] and [out, in], got {list(x.shape)} and {list(weight.shape)}")
    if not (x.numel() and weight.data.numel()):  # the kernel's loops run once at least
        return x.new_zeros(*x.shape[:-1], len(weight.data))
    rows, data = x.reshape(-1, x.shape[-1]), weight.data.contiguous()
    blocks = quantize(rows, "Q8_0").data.view(len(rows), -1, 34)
    scales = blocks[..., :2].contiguous().view(torch.float16).float()
    codes = blocks[..., 2:].contiguous().view(torch.int8)
    y = torch.empty(len(rows), len(data))
    for its_codes, its_scales, its_y in zip(codes, scales, y):
        on_threads(kernel_of(weight.format), data, its_codes, its_scales, its_y)
    return y.view(*x.shape[:-1], len(data)).to(x.dtype)


def on_threads(kernel, data, codes, scales, y):
    """Each has some of the rows of w; a call of ctypes lets the others run."""

    def run(data, y):
        pointers = [each.data_ptr() for each in (data, codes, scales, y)]
        kernel(*pointers, len(data), len(codes))

    threads = min(torch.get_num_threads(), len(data))
    if threads == 1:
        return run(data, y)
    pool = pool_of(threads, os.getpid())
    list(pool.map(run, data.tensor_split(threads), y.tensor_split(threads)))


@cache
def pool_of(threads, process):
    """Kept: to start threads takes longer than a small product. A forked ``process`` has none of its parent's."""
    return ThreadPoolExecutor(threads)


@cache
def kernel_of(format):
    return compiled_kernel(source_of(format))


def source_of(format):
    pairs = "".join(PAIRS.replace("NAME", name) for name in ("low", "high"))
    return SOURCE.replace("NBYTES", str(format.nbytes)).replace("CODES", CODES[format.name]).replace("PAIRS", pairs)


def compiled_kernel(source):
    from ..compilers.llvm_kernel import compiled  # llvmlite need not be there for the rest

    _, engine = compiled(source)
    kernel = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, *[ctypes.c_long] * 2)(engine.get_function_address("matvec"))
    kernel.engine = engine  # lives as long as the kernel
    return kernel
