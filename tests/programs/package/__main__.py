"""python -m package"""

from .train import main

main("the package")
