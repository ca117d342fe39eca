"""What the site has beside the pages: notebooks as pages, and the source files that pages link to.

mkdocs calls these functions by their names.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbconvert import MarkdownExporter

ROOT = Path(__file__).parent.parent.parent
LINK = re.compile(r"\]\((?!https?://|#)([^)\s#]+)(#[^)\s]*)?\)")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".cff": "yaml"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook, and for each source file that a page or an included file links to."""
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        for name, content in _notebook(Path(notebook.abs_src_path or "")).items():
            files.append(File.generated(config, name, content=content))
    texts = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *Path(config.docs_dir).rglob("*.md")]
    linked = {
        (text.parent / target).resolve()
        for text in texts
        for target, _ in LINK.findall(text.read_text(encoding="utf-8"))
    }
    outside = [
        file for file in sorted(linked) if file.is_file() and not file.is_relative_to(Path(config.docs_dir))
    ]
    for file in outside:
        if file.suffix != ".md":
            files.append(File.generated(config, _source(file), content=_listing(file)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to files beside docs/ to their pages."""
    here = Path(config.docs_dir) / page.file.src_uri

    def led(link: re.Match[str]) -> str:
        target = (here.parent / link[1]).resolve()
        if target.is_relative_to(Path(config.docs_dir)) or not target.is_file():
            return link[0]
        depth = "../" * page.file.src_uri.count("/")
        return f"]({depth}{_source(target)}{link[2] or ''})"

    return LINK.sub(led, markdown)


def _source(file: Path) -> str:
    """The page of a file beside docs/."""
    if file.suffix == ".md":
        return f"{file.stem.lower()}.md"
    return f"source/{file.relative_to(ROOT)}.md"


def _listing(file: Path) -> str:
    name = file.relative_to(ROOT)
    text = file.read_text(encoding="utf-8")
    return f"# {name}\n\n````{LANGUAGES.get(file.suffix, 'text')}\n{text}````\n"


def _notebook(path: Path) -> dict[str, str | bytes]:
    """A notebook as Markdown, and its pictures, by where they lie below docs/."""
    asked = {"unique_key": path.stem, "output_files_dir": "pictures"}
    body, resources = MarkdownExporter().from_notebook_node(nbformat.read(path, as_version=4), asked)
    return {f"{path.stem}.md": body, **resources["outputs"]}
