"""``python -m raydr``: the ``raydr`` command."""

from raydr.cli import main

if __name__ == "__main__":
    main()
