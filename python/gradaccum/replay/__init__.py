"""One recorded window: numbers, small pictures, bytes and formulas of every stage, and a web page that plays them.

    recording = acc.record(x, y)
    print(recording.table())
    recording.save_html("window.html")
"""
from .recording import Recording, record

__all__ = ["Recording", "record"]
