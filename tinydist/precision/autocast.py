"""Autocast: precision is chosen per operator, not by the dtype of its inputs.

    low       matmuls: linear, conv, matmul, attention         fast in 16 bits; they accumulate in fp32
    fp32      exp, log, norms, losses                          small differences or large ranges
    widest    several tensors that need a common dtype         fp32 if any of them is
    (none)    all else: relu, add, pool, dropout               as its inputs are; add(bf16, fp32) is fp32

                 w fp32 --cast--> bf16 --.
                                          linear --> bf16 --> cross_entropy (cast to fp32) --> loss fp32
                 x fp32 --cast--> bf16 --'

A cast is an operator like others, so backward casts back: the gradient of an fp32 weight is fp32. A weight is cast once
while the context lasts, however often it is used: 2 more bytes per parameter, until the context ends.

Sources: Micikevicius et al. 2017, Mixed Precision Training, section 3.3; the lists of torch.amp (its "Autocast Op
Reference", and aten/src/ATen/autocast_mode.cpp).
"""

from contextvars import ContextVar
from functools import wraps

import torch
from torch.overrides import TorchFunctionMode

from ..rules import flag, function, one_of, validate

# Names as they are seen from Python, functions or methods: x @ w is __matmul__. What torch builds from operators of
# these lists is seen as one: cross_entropy, einsum, nn.MultiheadAttention.
PRODUCTS = """
    linear matmul __matmul__ __rmatmul__ mm bmm addmm addbmm baddbmm linalg_vecdot einsum chain_matmul linalg_multi_dot
    conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d prelu
    scaled_dot_product_attention multi_head_attention_forward
"""
LOSSES = """
    cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss kl_div poisson_nll_loss
    binary_cross_entropy_with_logits soft_margin_loss multi_margin_loss multilabel_margin_loss margin_ranking_loss
    hinge_embedding_loss cosine_embedding_loss triplet_margin_loss
"""
LISTS = {
    "cpu": {
        "low": PRODUCTS + "tensordot inner",
        "fp32": LOSSES + """
            binary_cross_entropy ctc_loss prod trace cdist quantile nanquantile stft polar view_as_complex grid_sampler
            avg_pool3d max_pool3d adaptive_avg_pool3d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d
            max_unpool2d max_unpool3d inverse pinverse cholesky cholesky_inverse cholesky_solve lu_solve qr svd orgqr
            ormqr geqrf triangular_solve linalg_cholesky linalg_cond linalg_eig linalg_eigh linalg_eigvals
            linalg_eigvalsh linalg_householder_product linalg_inv linalg_lstsq linalg_matrix_rank linalg_qr
            linalg_solve linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve fft_fft fft_fft2 fft_fftn
            fft_ifft fft_ifft2 fft_ifftn fft_rfft fft_rfft2 fft_rfftn fft_irfft fft_irfft2 fft_irfftn fft_hfft fft_ihfft
        """,
        "widest": "cat stack index_copy",
    },
    "cuda": {
        "low": PRODUCTS + "convolution mv addmv addr",
        "fp32": LOSSES + """
            exp expm1 log log2 log10 log1p pow __pow__ __rpow__ square rsqrt reciprocal __rdiv__ __rtruediv__
            acos asin cosh sinh tan erfinv softplus softmax log_softmax logsumexp sum prod cumsum cumprod
            layer_norm group_norm rms_norm normalize norm frobenius_norm nuclear_norm linalg_norm linalg_vector_norm
            linalg_matrix_norm renorm cosine_similarity dist pdist cdist interpolate
        """,
        "widest": "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot inner scatter_add",
        "banned": "binary_cross_entropy",
    },
}  # fmt: skip
RULES = {
    device: {name: rule for rule, names in lists.items() for name in names.split()} for device, lists in LISTS.items()
}
DTYPES = {"cpu": torch.bfloat16, "cuda": torch.float16}
CASTABLE = (torch.float32, torch.float16, torch.bfloat16)

entered = ContextVar("entered", default=(None, None, None))  # in this thread: the innermost, its casts, those around it


@validate(dtype=torch.dtype, enabled=flag, cache=flag)
class autocast(TorchFunctionMode):
    """``with autocast():`` or ``@autocast()``: the operators inside choose their precision, backward follows them.

    device:     whose lists to go by, "cpu" or "cuda". Tensors may be anywhere.
    dtype:      of the low precision; None: bfloat16 for "cpu", float16 for "cuda".
    enabled:    False switches an outer autocast off.
    cache:      keep the casts of weights while this lasts.

    Only float32, float16 and bfloat16 are cast. In-place operators, and calls with ``out`` or a ``dtype``, are not
    changed. Activation checkpointing recomputes outside of the context: pass it
    ``context_fn=lambda: (nullcontext(), autocast())``.
    """

    def __init__(self, device="cpu", dtype=None, enabled=True, cache=True):
        super().__init__()
        if not one_of(RULES)(device):
            raise ValueError(f"autocast: device must be one of {', '.join(map(repr, RULES))}, got {device!r}")
        rules, dtype = RULES[device], dtype or DTYPES[device]
        if dtype not in (torch.float16, torch.bfloat16):
            raise ValueError(f"autocast: dtype must be torch.float16 or torch.bfloat16, got {dtype}")
        self.rules, self.dtype, self.cache = rules if enabled else {}, dtype, cache

    @validate(function=function)
    def __call__(self, function):
        """As a decorator."""

        @wraps(function)
        def wrapped(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return wrapped

    def __enter__(self):
        entered.set((self, {} if self.cache else None, entered.get()))
        return super().__enter__()

    def __exit__(self, *error):
        entered.set(entered.get()[2])
        return super().__exit__(*error)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, rule = kwargs or {}, self.rules.get(getattr(func, "__name__", None))
        if rule is None or entered.get()[0] is not self or kwargs.get("dtype") or kwargs.get("out") is not None:
            return func(*args, **kwargs)
        dtype = self._dtype_by(rule, args, kwargs)
        return func(*self._cast(args, dtype), **self._cast(kwargs, dtype))

    def _dtype_by(self, rule, args, kwargs):
        if rule == "banned":
            raise RuntimeError(
                "autocast: binary_cross_entropy takes the logarithm of a probability that may be 0 or 1 in float16; "
                "leave the sigmoid out, and use binary_cross_entropy_with_logits"
            )
        if rule == "widest":
            rule = "fp32" if any(each.dtype == torch.float32 for each in _tensors_in(args, kwargs)) else "low"
        return torch.float32 if rule == "fp32" else self.dtype

    def _cast(self, value, dtype):
        """The tensors in ``value``, whatever it is, to ``dtype``."""
        if isinstance(value, torch.Tensor):
            return self._cast_tensor(value, dtype) if value.dtype in CASTABLE and value.dtype != dtype else value
        if isinstance(value, dict):
            return {key: self._cast(each, dtype) for key, each in value.items()}
        if type(value) in (list, tuple):
            return type(value)([self._cast(each, dtype) for each in value])
        return value

    def _cast_tensor(self, tensor, dtype):
        a_weight = tensor.is_leaf and tensor.requires_grad and dtype == self.dtype
        casts = entered.get()[1]
        if casts is None or not a_weight:
            return tensor.to(dtype)
        key = id(tensor), torch.is_grad_enabled()  # a cast without grad leads no gradient back
        _, version, cast = casts.get(key, (None, None, None))
        if version != tensor._version:  # there is none, or the optimizer has been here
            cast = tensor.to(dtype)
            casts[key] = tensor, tensor._version, cast
        return cast


def _tensors_in(*values):
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, dict | list | tuple):
            yield from _tensors_in(*(value.values() if isinstance(value, dict) else value))
