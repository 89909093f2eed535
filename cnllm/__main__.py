"""`python -m cnllm` is `cnllm`."""

import sys

from cnllm.cli import program

if __name__ == "__main__":
    sys.exit(program())
