"""What the functions of ``gradaccum.show`` return."""
from __future__ import annotations

import html
import io
import textwrap
from functools import cached_property
from pathlib import Path
from typing import Callable

from .._language import _, get_language, using
from ._png import data_uri
from .style import style


class Picture:
    """A picture with a message, and the same facts as text. A notebook shows the picture; ``print`` shows the text.

    Attributes:
        title: the message, one sentence that the data says.
        text: the text twin: the message and all numbers of the picture. Needs no matplotlib.
    """

    def __init__(self, title: str, text: str, draw: Callable):
        self.title, self.text, self._draw, self._language = title, f"{title}\n{text}", draw, get_language()

    @cached_property
    def figure(self):
        """The matplotlib Figure, to be changed or saved. ImportError without matplotlib."""
        try:
            from matplotlib import rc_context
            from matplotlib.figure import Figure
        except ImportError:
            raise ImportError("a picture needs matplotlib: pip install 'gradaccum[show]'; print(picture) shows its numbers without it") from None
        with rc_context(style()), using(self._language):
            figure = Figure(layout="constrained")
            self._draw(figure)
            figure.suptitle("\n".join(textwrap.wrap(self.title, int(9.5 * figure.get_figwidth()))), x=0.01, ha="left", fontweight="bold", fontsize=12)
        return figure

    def _render(self, target, **options) -> None:
        from matplotlib import rc_context

        figure = self.figure
        with rc_context(style()):
            figure.savefig(target, **options)

    def save(self, path, dpi: int = 150) -> Path:
        """Writes the picture; the suffix tells how: .png, .svg, .pdf. Returns the path."""
        path = Path(path)
        self._render(path, dpi=dpi)
        return path

    def _repr_png_(self) -> bytes | None:
        out = io.BytesIO()
        try:
            self._render(out, format="png")
        except ImportError:                                  # a notebook without matplotlib shows the text
            return None
        return out.getvalue()

    def _repr_html_(self) -> str:
        data, text = self._repr_png_(), f"<pre>{html.escape(self.text)}</pre>"
        if data is None:
            return text
        return (f'<figure style="margin:0"><img src="{data_uri(data)}" alt="{html.escape(self.title)}" style="max-width:100%">'
                f"<details><summary>{html.escape(_('The numbers as text'))}</summary>{text}</details></figure>")

    def __repr__(self):
        return self.text
