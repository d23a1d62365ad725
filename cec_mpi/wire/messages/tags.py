"""Tags of messages."""

from __future__ import annotations

__all__ = ["CONTENT", "NOTE", "OBJECT", "ORDER", "REPORT", "VALUES"]

ORDER, CONTENT, REPORT, VALUES, OBJECT, NOTE = 21, 22, 23, 24, 25, 26
