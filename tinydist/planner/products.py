"""Matmuls of a layer forward, and backward: of its input and of its weight; and, in fp8, what casts to it."""

from .operators import Matmul, MemoryOp

NUMBER = 2  # bytes of an activation


class Products:
    """Of ``program``, for so many ``tokens``. A matrix is (columns, inner)."""

    def product(self, matrix, linear=True):
        columns, inner = matrix
        return [
            *self.cast(columns * inner + self.tokens * inner, linear),
            self.matmul(self.tokens, columns, inner, linear),
        ]

    def product_backward(self, matrix):
        return [*self.cast_backward(matrix), self.of_input(matrix), self.of_weight(matrix)]

    def of_input(self, matrix, linear=True):
        columns, inner = matrix
        return self.matmul(self.tokens, inner, columns, linear)

    def of_weight(self, matrix, linear=True):
        columns, inner = matrix
        return self.matmul(columns, inner, self.tokens, linear)

    def matmul(self, rows, columns, inner, linear):
        return Matmul(1, rows, columns, inner, self.program.fp8 and linear)

    def cast(self, numbers, linear=True):
        """To fp8: the largest is found, then each is scaled."""
        return [MemoryOp(2 * numbers), MemoryOp(3 * numbers)] * (self.program.fp8 and linear)

    def cast_backward(self, matrix, linear=True):
        """Once more the input and the matrix; and the gradient of the output."""
        columns, inner = matrix
        return self.cast(columns * inner + self.tokens * (inner + columns), linear)
