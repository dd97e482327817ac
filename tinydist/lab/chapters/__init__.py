"""The exercises, by chapter, in the order of the course."""

from . import mixed_precision as mixed_precision  # isort: skip
from . import zero as zero  # isort: skip
from . import pipeline_parallel as pipeline_parallel  # isort: skip
from . import attention_heads as attention_heads  # isort: skip
from . import flash_attention as flash_attention  # isort: skip
