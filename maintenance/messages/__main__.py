"""Bring the catalogues of the command line's messages up to date.

    python -m maintenance.messages

Every message of the source gets an entry in each `cnllm/cli/language/*.po`; those that are gone leave it. Translations
stay. Messages without a translation are printed, with their files, and the exit status is 1: write the translation into
the catalogue and run this again. A message that stays as it is has itself as its translation.
"""

from __future__ import annotations

import argparse
import sys

from maintenance.messages.catalogue import catalogue_bytes, catalogues, translations
from maintenance.messages.extract import messages


def main() -> int:
    """Write the catalogues and return 1 where a message has no translation."""
    raw = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser("python -m maintenance.messages", description=__doc__, formatter_class=raw).parse_args()
    missing = 0
    for path in catalogues():
        known = translations(path)
        path.write_bytes(catalogue_bytes(path.stem, known))
        for message, files in messages().items():
            if message.text not in known:
                missing += 1
                sys.stderr.write(f"{path.name}: {files[0] if files else 'click'}: {message.text!r}\n")
    if missing:
        sys.stderr.write(f"{missing} without a translation\n")
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main())
