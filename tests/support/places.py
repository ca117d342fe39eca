"""Where things are in the repository."""

from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
SUPPORT = TESTS / "support"
ROOT = TESTS.parent
DOCS = ROOT / "docs"
