"""Arithmetic in LLVM IR: the primitives of operators.py, without calls that LLVM cannot vectorize.

    exp(x) = 2^n exp(r)     n = round(x / ln 2),  |r| <= ln 2 / 2: a polynomial; 2^n is made of bits

The C library's exp takes one number at a time, and a loop that calls it stays a loop over numbers. So exp is written
out, and erf in float32. What is left of calls: log, and erf in float64.

Sources: Cody and Waite 1980, Software Manual for the Elementary Functions; Abramowitz and Stegun 1964.
"""

import math

from llvmlite import ir

BOOL = ir.IntType(1)
CONTRACT, ANY_ORDER = ("contract",), ("contract", "reassoc", "nsz")


class Primitives:
    def __init__(self, builder, single):
        self.builder, self.single = builder, single
        self.type = ir.FloatType() if single else ir.DoubleType()

    def constant(self, number):
        return ir.Constant(self.type, float(number))

    def add(self, a, b):
        return self.builder.fadd(a, b, flags=CONTRACT)

    def add_in_any_order(self, a, b):
        return self.builder.fadd(a, b, flags=ANY_ORDER)

    def sub(self, a, b):
        return self.builder.fsub(a, b, flags=CONTRACT)

    def mul(self, a, b):
        return self.builder.fmul(a, b, flags=CONTRACT)

    def div(self, a, b):
        return self.builder.fdiv(a, b, flags=CONTRACT)

    def maximum(self, a, b):
        return self.call("llvm.maximum", a, b)

    def minimum(self, a, b):
        return self.call("llvm.minimum", a, b)

    def sqrt(self, x):
        return self.call("llvm.sqrt", x)

    def log(self, x):
        return self.call("llvm.log", x)

    def erf(self, x):
        """In float32 within 1.5e-7 (Abramowitz and Stegun 1964, 7.1.26); in float64 the C library's."""
        if not self.single:
            return self.call("erf", x)
        one, size = self.constant(1.0), self.call("llvm.fabs", x)
        t = self.div(one, self.add(one, self.mul(size, self.constant(0.3275911))))
        y = self.constant(0.0)
        for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
            y = self.mul(self.add(y, self.constant(factor)), t)
        tail = self.mul(y, self.exp(self.sub(self.constant(0.0), self.mul(x, x))))
        return self.call("llvm.copysign", self.sub(one, tail), x)

    def compare(self, sign, a, b):
        return self.builder.fcmp_ordered(sign, a, b)

    def select(self, condition, a, b):
        return self.builder.select(condition, a, b)

    def call(self, name, *values):
        module, kind = self.builder.module, ir.FunctionType(self.type, [self.type] * len(values))
        if name.startswith("llvm."):
            return self.builder.call(module.declare_intrinsic(name, [self.type], kind), values)
        return self.builder.call(module.globals.get(name) or ir.Function(module, kind, name), values)

    def exp(self, x):
        """Within 2 eps of its value; 0 below 2^-125, or 2^-1021."""
        bits, fraction, bias = (32, 23, 127) if self.single else (64, 52, 1023)
        whole = ir.IntType(bits)
        lowest, highest = ((2 - bias) * math.log(2), (bias + 1) * math.log(2))
        rounder = self.constant(1.5 * 2.0**fraction)  # added, its last bits are n
        shifted = self.add(self.mul(x, self.constant(1 / math.log(2))), rounder)
        n = self.builder.fsub(shifted, rounder)
        high = math.floor(math.log(2) * 2**10) / 2**10  # n times it is exact
        low = math.log(2) - high + 2.319046813846e-17  # by which ln 2 is larger than a float64 says
        r = self.sub(self.sub(x, self.mul(n, self.constant(high))), self.mul(n, self.constant(low)))
        terms = 8 if self.single else 14
        y = self.constant(1 / math.factorial(terms - 1))
        for k in reversed(range(terms - 1)):
            y = self.add(self.mul(y, r), self.constant(1 / math.factorial(k)))
        exponent = self.builder.shl(self.builder.bitcast(shifted, whole), ir.Constant(whole, fraction))
        half = self.builder.add(exponent, ir.Constant(whole, (bias - 1) << fraction))  # 2^(n-1) is a float
        y = self.mul(self.mul(y, self.builder.bitcast(half, self.type)), self.constant(2.0))
        y = self.select(self.builder.fcmp_ordered("<", x, self.constant(lowest)), self.constant(0.0), y)
        return self.select(self.builder.fcmp_ordered(">", x, self.constant(highest)), self.constant(math.inf), y)
