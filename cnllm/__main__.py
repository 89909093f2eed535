"""`python -m cnllm` is `cnllm`."""

import sys

from cnllm.cli import main

if __name__ == "__main__":
    sys.exit(main())
